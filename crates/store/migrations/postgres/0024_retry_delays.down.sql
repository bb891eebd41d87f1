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
    WHERE f.name NOT IN ('max_retries', 'backoff', 'backoff_seconds', 'max_backoff_seconds', 'jitter') LIMIT 1;
    IF FOUND THEN
        PERFORM inbox_refuse('retry_policy has no field ' || quote_literal(left(bad, 100)),
            'It has max_retries, backoff, backoff_seconds, max_backoff_seconds and jitter.');
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
    PERFORM inbox_duration(f.name || ' of the retry_policy', (given ->> f.name)::numeric, 0, 86400000)
    FROM unnest(ARRAY['backoff_seconds', 'max_backoff_seconds']) AS f (name);
    IF (given ->> 'max_backoff_seconds')::numeric < (given ->> 'backoff_seconds')::numeric THEN
        PERFORM inbox_refuse('max_backoff_seconds of the retry_policy is less than backoff_seconds',
            'No delay is longer than max_backoff_seconds: make it at least as long as the first.');
    END IF;
    RETURN given;
END
$$;

DROP FUNCTION inbox_check_delays(jsonb);
DROP FUNCTION inbox_check_retry_on(jsonb);
