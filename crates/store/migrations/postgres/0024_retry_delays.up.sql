-- Retries over days: delays of up to 30 days, listed one by one if need be, and a choice of what is retried.
CREATE FUNCTION inbox_check_delays(policy jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, punctual, pg_temp AS $$
DECLARE
    delays CONSTANT jsonb := policy -> 'delays_seconds';
    bad text;
BEGIN
    IF jsonb_typeof(delays) <> 'array' OR jsonb_array_length(delays) NOT BETWEEN 1 AND 100
        OR EXISTS (SELECT FROM jsonb_array_elements(delays) AS d (delay) WHERE jsonb_typeof(d.delay) <> 'number')
    THEN
        PERFORM inbox_refuse('delays_seconds of the retry_policy is not acceptable',
            'It is a list of 1 to 100 numbers of seconds; for no retries give max_retries 0 instead.');
    END IF;
    PERFORM inbox_duration('a delay of the retry_policy', (d.delay #>> '{}')::numeric, 0, 2592000000)
    FROM jsonb_array_elements(delays) AS d (delay);
    SELECT f.name INTO bad FROM unnest(ARRAY['backoff', 'backoff_seconds', 'max_backoff_seconds']) AS f (name)
    WHERE policy -> f.name <> 'null' LIMIT 1;
    IF FOUND THEN
        PERFORM inbox_refuse(bad || ' of the retry_policy is given together with delays_seconds',
            'The listed delays are all there are: leave it out.');
    END IF;
    IF policy -> 'max_retries' <> to_jsonb(jsonb_array_length(delays)) AND policy -> 'max_retries' <> 'null' THEN
        PERFORM inbox_refuse('max_retries of the retry_policy is not the number of its delays_seconds',
            'There are as many retries as delays: leave it out.');
    END IF;
END
$$;

CREATE FUNCTION inbox_check_retry_on(kinds jsonb) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, punctual, pg_temp AS $$
BEGIN
    IF jsonb_typeof(kinds) <> 'array' OR jsonb_array_length(kinds) > 50
        OR EXISTS (
            SELECT FROM jsonb_array_elements(kinds) AS k (kind)
            WHERE jsonb_typeof(k.kind) <> 'string'
                OR k.kind #>> '{}' COLLATE "C" !~ '^([345]xx|[345][0-9][0-9]|timeout|connection)$')
    THEN
        PERFORM inbox_refuse('retry_on of the retry_policy is not acceptable',
            'It is a list of up to 50 of 3xx, 4xx, 5xx, a status from 300 to 599 as a string, timeout and connection.');
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION inbox_check_retry_policy(given jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, punctual, pg_temp AS $$
DECLARE
    bad text;
BEGIN
    IF given IS NULL OR given = 'null' THEN
        RETURN NULL;
    END IF;
    IF jsonb_typeof(given) <> 'object' THEN
        PERFORM inbox_refuse('retry_policy is not an object',
            'It is one such as {"max_retries": 5, "backoff": "exponential", "backoff_seconds": 10}.');
    END IF;
    SELECT f.name INTO bad FROM jsonb_object_keys(given) AS f (name)
    WHERE f.name NOT IN ('max_retries', 'backoff', 'backoff_seconds', 'max_backoff_seconds', 'jitter', 'delays_seconds',
        'retry_on') LIMIT 1;
    IF FOUND THEN
        PERFORM inbox_refuse('retry_policy has no field ' || quote_literal(left(bad, 100)),
            'It has max_retries, backoff, backoff_seconds, max_backoff_seconds, jitter, delays_seconds and retry_on.');
    END IF;
    IF given -> 'max_retries' <> 'null'
        AND (given ->> 'max_retries' !~ '^[0-9]{1,4}$' OR jsonb_typeof(given -> 'max_retries') <> 'number'
            OR (given ->> 'max_retries')::integer > 1000)
    THEN
        PERFORM inbox_refuse('max_retries of the retry_policy is not acceptable',
            'It must be a whole number from 0 to 1000.');
    END IF;
    IF given -> 'backoff' <> 'null' AND given -> 'backoff' NOT IN ('"fixed"', '"linear"', '"exponential"') THEN
        PERFORM inbox_refuse('backoff of the retry_policy is not acceptable', 'It is fixed, linear or exponential.');
    END IF;
    IF given -> 'jitter' <> 'null' AND given -> 'jitter' NOT IN ('"none"', '"full"') THEN
        PERFORM inbox_refuse('jitter of the retry_policy is not acceptable', 'It is none or full.');
    END IF;
    SELECT f.name INTO bad FROM unnest(ARRAY['backoff_seconds', 'max_backoff_seconds']) AS f (name)
    WHERE given -> f.name <> 'null' AND jsonb_typeof(given -> f.name) <> 'number' LIMIT 1;
    IF FOUND THEN
        PERFORM inbox_refuse(bad || ' of the retry_policy is not a number', 'It is a number of seconds.');
    END IF;
    PERFORM inbox_duration(f.name || ' of the retry_policy', (given ->> f.name)::numeric, 0, 2592000000)
    FROM unnest(ARRAY['backoff_seconds', 'max_backoff_seconds']) AS f (name);
    IF (given ->> 'max_backoff_seconds')::numeric < (given ->> 'backoff_seconds')::numeric THEN
        PERFORM inbox_refuse('max_backoff_seconds of the retry_policy is less than backoff_seconds',
            'No delay is longer than max_backoff_seconds: make it at least as long as the first.');
    END IF;
    PERFORM inbox_check_delays(given) WHERE given -> 'delays_seconds' <> 'null';
    PERFORM inbox_check_retry_on(given -> 'retry_on') WHERE given -> 'retry_on' <> 'null';
    RETURN given;
END
$$;

REVOKE ALL ON FUNCTION inbox_check_delays(jsonb), inbox_check_retry_on(jsonb) FROM PUBLIC;
