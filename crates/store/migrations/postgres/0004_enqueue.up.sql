-- Submissions by SQL, inside a transaction of the submitter's own: `punctual.enqueue` puts them into the inbox, and the
-- nodes move them from there to the tasks by the rules of every other submission. The function writes to tables that the
-- product's own inserts never touch, so that a transaction that stays open holds up nobody else.

-- What was committed and is no task yet. `xact` is the transaction that put it there, by which a node finds what it was
-- told of without walking over what others have taken.
CREATE TABLE inbox (
    id         uuid    PRIMARY KEY, -- the task's
    seq        bigint  GENERATED ALWAYS AS IDENTITY,
    xact       bigint  NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
    created_at bigint  NOT NULL,
    bytes      integer NOT NULL,
    tenant     text    COLLATE "C" NOT NULL,
    key        text    COLLATE "C", -- which it holds in `inbox_keys`
    submission text    NOT NULL -- as the body of POST /v1/tasks
) WITH (
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);

CREATE INDEX inbox_order ON inbox (xact, seq);

-- The idempotency keys of this way in, with a digest of what came under them. Apart from `idempotency`, where the hands
-- would wait for whoever has a transaction open.
CREATE TABLE inbox_keys (
    tenant     text   COLLATE "C" NOT NULL,
    key        text   COLLATE "C" NOT NULL,
    task_id    uuid   NOT NULL,
    digest     bytea  NOT NULL,
    created_at bigint NOT NULL,
    PRIMARY KEY (tenant, key)
);

CREATE INDEX inbox_keys_by_time ON inbox_keys (created_at);

-- What could not become a task, and why.
CREATE TABLE inbox_refused (
    id         uuid   PRIMARY KEY,
    created_at bigint NOT NULL,
    refused_at bigint NOT NULL,
    tenant     text   COLLATE "C" NOT NULL,
    submission text   NOT NULL,
    reason     text   NOT NULL
);

CREATE INDEX inbox_refused_by_time ON inbox_refused (refused_at);

-- What a call has to know of the nodes: how large a payload may be, as their setting says; and until when one of them
-- looks into the inbox all the time, so that it need not be told.
CREATE TABLE inbox_watch (
    only_one      integer PRIMARY KEY CHECK (only_one = 1),
    payload_bytes integer NOT NULL,
    watched_until bigint  NOT NULL
) WITH (fillfactor = 10);

INSERT INTO inbox_watch (only_one, payload_bytes, watched_until) VALUES (1, 262144, 0);

CREATE FUNCTION inbox_refuse(message text, hint text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = message, HINT = hint;
END
$$;

-- A UUID of version 7 for this instant.
CREATE FUNCTION inbox_id(millis bigint) RETURNS uuid
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
    SELECT encode(set_byte(timed.bytes, 6, (get_byte(timed.bytes, 6) & 15) | 112), 'hex')::uuid
    FROM (
        SELECT overlay(uuid_send(gen_random_uuid()) PLACING substring(int8send(millis) FROM 3) FROM 1 FOR 6) AS bytes
    ) AS timed
$$;

-- An instant in milliseconds, rounded up: nothing may happen before its time.
CREATE FUNCTION inbox_instant(field text, given timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, punctual, pg_temp AS $$
BEGIN
    IF given < '0001-01-01 00:00:00+00' OR given > '9999-12-31 23:59:59.999+00' THEN
        PERFORM inbox_refuse(field || ' is out of range', 'It must lie between the years 0001 and 9999.');
    END IF;
    RETURN ceil(extract(epoch FROM given) * 1000);
END
$$;

-- A duration in milliseconds, rounded up, within bounds.
CREATE FUNCTION inbox_duration(field text, given numeric, least_millis bigint, most_millis bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, punctual, pg_temp AS $$
BEGIN
    -- NaN counts as greater than every number.
    IF given < 0 OR given > most_millis / 1000.0 OR ceil(given * 1000) < least_millis THEN
        PERFORM inbox_refuse(
            format('%s = %s is out of range', field, left(given::text, 40)),
            format('It must be from %s to %s.', trim_scale(least_millis / 1000.0), trim_scale(most_millis / 1000.0)));
    END IF;
    RETURN ceil(given * 1000);
END
$$;

CREATE FUNCTION inbox_check_name(field text, given text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, punctual, pg_temp AS $$
BEGIN
    IF given IS NULL OR given COLLATE "C" !~ '^[A-Za-z0-9._:/-]{1,255}$' THEN
        PERFORM inbox_refuse(
            format('%s %s is not acceptable', field, coalesce(quote_literal(left(given, 100)), 'NULL')),
            'It must be 1 to 255 of A-Z a-z 0-9 . _ : / -');
    END IF;
END
$$;

-- A document that every reader reads alike, as the HTTP interface has it.
CREATE FUNCTION inbox_check_payload(given jsonb, most_bytes integer) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, punctual, pg_temp AS $$
DECLARE
    written CONSTANT text := given::text;
BEGIN
    IF octet_length(written) > most_bytes THEN
        PERFORM inbox_refuse(
            format('the payload has %s bytes', octet_length(written)),
            format('It may have at most %s (the server''s limits.payload_bytes), as jsonb writes it.', most_bytes));
    END IF;
    -- Only what is long enough to break a rule is looked through.
    IF length(written) - length(translate(written, '[{', '')) > 127
        AND given @? 'strict $.**{127 to last} ? (@.type() == "array" || @.type() == "object")' THEN
        PERFORM inbox_refuse('the payload is nested too deeply', 'It may be at most 127 levels deep.');
    END IF;
    IF length(written) > 308
        AND given @? 'strict $.** ? (@.type() == "number" && (@ > 1.7976931348623157e308 || @ < -1.7976931348623157e308))'
    THEN
        PERFORM inbox_refuse('a number in the payload is beyond the range of a double',
            'Write it as a string, or as a smaller number.');
    END IF;
END
$$;

-- Whether it is a URL that is spelled in the common way: what is taken here must be one to every reader.
CREATE FUNCTION inbox_is_url(given text) RETURNS boolean
LANGUAGE plpgsql STRICT SET search_path = pg_catalog, punctual, pg_temp AS $$
DECLARE
    -- Host, port, and the rest.
    parts CONSTANT text[] := regexp_match(given COLLATE "C",
        '^[hH][tT][tT][pP][sS]?://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?([/?#][A-Za-z0-9._~:/?#@!$&''()*+,;=%-]*)?$');
    host  CONSTANT text := lower(parts[1]);
    port  CONSTANT integer := coalesce(substr(parts[2], 2), '80');
    rest  CONSTANT text := coalesce(parts[3], '');
    octet CONSTANT text := '(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])';
    label CONSTANT text := '[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?';
BEGIN
    -- In its canonical form a quote is three characters, and a path that is missing is one.
    IF parts IS NULL OR port NOT BETWEEN 1 AND 65535 OR length(host) > 253
        OR length(given) + (rest NOT LIKE '/%')::integer + 2 * length(regexp_replace(rest, '[^'']', '', 'g')) > 2048
    THEN
        RETURN false;
    ELSIF host LIKE '[%' THEN
        PERFORM trim(BOTH '[]' FROM host)::inet;
        RETURN true;
    END IF;
    RETURN host ~ format('^%1$s\.%1$s\.%1$s\.%1$s$', octet)
        OR host ~ format('^(%1$s\.)*%1$s$', label) AND host !~ '(^|\.)([0-9]+|0x[0-9a-f]*)$';
EXCEPTION WHEN invalid_text_representation THEN
    RETURN false;
END
$$;

-- A map of texts; gives NULL where there is none.
CREATE FUNCTION inbox_check_map(field text, given jsonb, most_entries integer) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, punctual, pg_temp AS $$
DECLARE
    entries integer;
BEGIN
    IF given IS NULL OR given = 'null' THEN
        RETURN NULL;
    END IF;
    IF jsonb_typeof(given) <> 'object' THEN
        PERFORM inbox_refuse(field || ' is not an object', 'It must be a JSON object whose values are strings.');
    END IF;
    SELECT count(*) INTO entries FROM jsonb_object_keys(given);
    IF entries > most_entries THEN
        PERFORM inbox_refuse(format('%s has %s entries', field, entries), format('It may have at most %s.', most_entries));
    END IF;
    IF EXISTS (SELECT FROM jsonb_each(given) AS e WHERE jsonb_typeof(e.value) <> 'string') THEN
        PERFORM inbox_refuse(field || ' has a value that is not a string',
            'It must be a JSON object whose values are strings.');
    END IF;
    RETURN given;
END
$$;

CREATE FUNCTION inbox_check_headers(given jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, punctual, pg_temp AS $$
DECLARE
    headers CONSTANT jsonb := inbox_check_map('callback_headers', given, 32);
    bytes bigint;
    bad text;
BEGIN
    SELECT sum(octet_length(h.key) + octet_length(h.value)) INTO bytes FROM jsonb_each_text(headers) AS h;
    IF bytes > 8192 THEN
        PERFORM inbox_refuse(format('callback_headers have %s bytes', bytes), 'They may have at most 8192 in all.');
    END IF;
    SELECT h.key INTO bad FROM jsonb_each_text(headers) AS h
    WHERE h.key COLLATE "C" !~ '^[A-Za-z0-9!#$%&''*+.^_`|~-]+$' LIMIT 1;
    IF FOUND THEN
        PERFORM inbox_refuse(quote_literal(left(bad, 100)) || ' is not the name of a header',
            'Names of callback_headers are made of A-Z a-z 0-9 and ! # $ % & '' * + - . ^ _ ` | ~');
    END IF;
    SELECT h.key INTO bad FROM jsonb_each_text(headers) AS h
    WHERE lower(h.key COLLATE "C") IN (
            'connection', 'content-encoding', 'content-length', 'content-range', 'content-type', 'expect', 'host',
            'http2-settings', 'idempotency-key', 'keep-alive', 'te', 'traceparent', 'tracestate', 'trailer',
            'transfer-encoding', 'upgrade', 'user-agent')
        OR lower(h.key COLLATE "C") ~ '^(punctual-|webhook-|proxy-)'
    LIMIT 1;
    IF FOUND THEN
        PERFORM inbox_refuse(bad || ' is a header that a callback may not set',
            'It belongs to the connection, to the body, or to what Punctual sends itself.');
    END IF;
    SELECT h.key INTO bad FROM jsonb_each_text(headers) AS h
    WHERE h.value COLLATE "C" !~ '^([!-~]([\t -~]*[!-~])?)?$' LIMIT 1;
    IF FOUND THEN
        PERFORM inbox_refuse('the value of the header ' || bad || ' is not acceptable',
            'It must be visible ASCII characters, blanks and tabs, with neither blank nor tab at its ends.');
    END IF;
    SELECT min(h.key) INTO bad FROM jsonb_each_text(headers) AS h
    GROUP BY lower(h.key COLLATE "C") HAVING count(*) > 1 LIMIT 1;
    IF FOUND THEN
        PERFORM inbox_refuse('the header ' || bad || ' is given twice, in another case', 'Give each header once.');
    END IF;
    RETURN headers;
END
$$;

CREATE FUNCTION inbox_check_metadata(given jsonb) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, punctual, pg_temp AS $$
DECLARE
    labels CONSTANT jsonb := inbox_check_map('metadata', given, 32);
    bad text;
BEGIN
    SELECT l.key INTO bad FROM jsonb_each_text(labels) AS l
    WHERE length(l.key) NOT BETWEEN 1 AND 64
        OR length(l.value) > 512
        OR l.key || l.value ~ '[\u0001-\u001f\u007f-\u009f]'
    LIMIT 1;
    IF FOUND THEN
        PERFORM inbox_refuse('the label ' || quote_literal(left(bad, 100)) || ' of metadata is not acceptable',
            'Keys have 1 to 64 characters and values up to 512, none of them a control character.');
    END IF;
    RETURN labels;
END
$$;

CREATE FUNCTION inbox_check_retry_policy(given jsonb) RETURNS jsonb
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

-- Submits a task that exists if and only if the caller's transaction commits; gives its id. The arguments are the fields
-- of POST /v1/tasks, and NULL leaves one to its default. The same key with the same content gives the first task's id.
CREATE FUNCTION enqueue(
    type             text,
    payload          jsonb       DEFAULT NULL,
    execute_at       timestamptz DEFAULT NULL,
    idempotency_key  text        DEFAULT NULL,
    queue            text        DEFAULT NULL,
    tenant           text        DEFAULT NULL,
    priority         integer     DEFAULT NULL,
    delay_seconds    numeric     DEFAULT NULL,
    expires_at       timestamptz DEFAULT NULL,
    timeout_seconds  numeric     DEFAULT NULL,
    callback_url     text        DEFAULT NULL,
    callback_headers jsonb       DEFAULT NULL,
    metadata         jsonb       DEFAULT NULL,
    retry_policy     jsonb       DEFAULT NULL
) RETURNS uuid
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
-- Whatever the caller's session is set to.
SET search_path = pg_catalog, punctual, pg_temp
SET standard_conforming_strings = on
AS $$
DECLARE
    wire_time  CONSTANT text   := 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"';
    soon       CONSTANT bigint := 60000; -- what is due later is found by the nodes themselves
    brief      CONSTANT bigint := 1000; -- what commits later than this after the call may miss the end of a watch
    now_millis CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    whose      CONSTANT text   := coalesce(enqueue.tenant, 'default');
    due_millis bigint := now_millis;
    delay_millis bigint;
    timeout_millis bigint;
    headers    jsonb;
    submission text;
    content    bytea;
    task       CONSTANT uuid := inbox_id(now_millis);
    first      record;
    watch      record;
BEGIN
    SELECT w.payload_bytes, w.watched_until INTO watch FROM inbox_watch AS w;
    PERFORM inbox_check_name('type', enqueue.type);
    PERFORM inbox_check_name('queue', coalesce(enqueue.queue, 'default'));
    IF whose COLLATE "C" !~ '^[A-Za-z0-9._-]{1,64}$' THEN
        PERFORM inbox_refuse(format('tenant %L is not acceptable', left(whose, 100)),
            'It must be 1 to 64 of A-Z a-z 0-9 . _ -');
    END IF;
    IF enqueue.priority NOT BETWEEN 0 AND 9 THEN
        PERFORM inbox_refuse(format('priority = %s is out of range', enqueue.priority), 'It must be from 0 to 9.');
    END IF;
    IF enqueue.idempotency_key COLLATE "C" !~ '^[!-~]([ -~]{0,253}[!-~])?$' THEN
        PERFORM inbox_refuse(format('idempotency_key %L is not acceptable', left(enqueue.idempotency_key, 300)),
            'It must be 1 to 255 visible ASCII characters, with blanks only between them.');
    END IF;
    IF enqueue.payload IS NOT NULL THEN
        PERFORM inbox_check_payload(enqueue.payload, watch.payload_bytes);
    END IF;
    IF enqueue.execute_at IS NOT NULL AND enqueue.delay_seconds IS NOT NULL THEN
        PERFORM inbox_refuse('execute_at and delay_seconds are both given', 'Give one of them, or none for now.');
    ELSIF enqueue.execute_at IS NOT NULL THEN
        due_millis := inbox_instant('execute_at', enqueue.execute_at);
    ELSIF enqueue.delay_seconds IS NOT NULL THEN
        delay_millis := inbox_duration('delay_seconds', enqueue.delay_seconds, 0, 3155760000000);
        due_millis := now_millis + delay_millis;
    END IF;
    IF enqueue.expires_at IS NOT NULL
        AND inbox_instant('expires_at', enqueue.expires_at) <= greatest(due_millis, now_millis)
    THEN
        PERFORM inbox_refuse('expires_at leaves no time to run', 'It has to be later than execute_at and than now.');
    END IF;
    timeout_millis := inbox_duration('timeout_seconds', enqueue.timeout_seconds, 1, 86400000);
    headers := inbox_check_headers(enqueue.callback_headers);
    IF NOT inbox_is_url(enqueue.callback_url) THEN
        PERFORM inbox_refuse(
            'callback_url ' || quote_literal(left(enqueue.callback_url, 200)) || ' is not acceptable',
            'It must be an absolute http:// or https:// URL of at most 2048 ASCII characters with a name or an '
            'address as its host and without a user name; a name in another script is written as xn--…, and '
            'other characters as %XX.');
    ELSIF enqueue.callback_url IS NULL AND headers <> '{}' THEN
        PERFORM inbox_refuse('callback_headers are given without a callback_url', 'Give a callback_url beside them.');
    END IF;

    submission := jsonb_strip_nulls(jsonb_build_object(
        'type', enqueue.type,
        'queue', enqueue.queue,
        'priority', enqueue.priority,
        'idempotency_key', enqueue.idempotency_key,
        'execute_at', to_char(enqueue.execute_at AT TIME ZONE 'UTC', wire_time),
        'delay_seconds', trim_scale(delay_millis / 1000.0),
        'expires_at', to_char(enqueue.expires_at AT TIME ZONE 'UTC', wire_time),
        'timeout_seconds', trim_scale(timeout_millis / 1000.0),
        'callback_url', enqueue.callback_url,
        'callback_headers', headers,
        'metadata', inbox_check_metadata(enqueue.metadata),
        'retry_policy', inbox_check_retry_policy(enqueue.retry_policy)
    )) || jsonb_build_object('payload', coalesce(enqueue.payload, 'null'));

    IF enqueue.idempotency_key IS NOT NULL THEN
        content := sha256(convert_to(submission, 'UTF8'));
        -- Waits for whoever is about to use the key.
        INSERT INTO inbox_keys (tenant, key, task_id, digest, created_at)
        VALUES (whose, enqueue.idempotency_key, task, content, now_millis)
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            SELECT k.task_id, k.digest INTO first FROM inbox_keys AS k
            WHERE k.tenant = whose AND k.key = enqueue.idempotency_key;
            IF first.digest = content THEN
                RETURN first.task_id;
            END IF;
            RAISE EXCEPTION USING ERRCODE = 'unique_violation',
                MESSAGE = format('idempotency_key %L was used for something else, task_%s',
                    enqueue.idempotency_key, first.task_id),
                HINT = 'Use another key for another task, and the same arguments for the same one.';
        END IF;
        SELECT i.task_id INTO first FROM idempotency AS i
        WHERE i.tenant = whose AND i.key = enqueue.idempotency_key;
        IF FOUND THEN
            RAISE EXCEPTION USING ERRCODE = 'unique_violation',
                MESSAGE = format('idempotency_key %L was used over HTTP, for task_%s',
                    enqueue.idempotency_key, first.task_id),
                HINT = 'Whether that task is the same cannot be told here: look at it over HTTP, or use another key.';
        END IF;
    END IF;

    INSERT INTO inbox (id, created_at, bytes, tenant, key, submission)
    VALUES (task, now_millis, octet_length(submission), whose, enqueue.idempotency_key, submission);
    -- Once a transaction, however often it enqueues. Whoever notifies has to commit alone, one after the other in the whole
    -- of the server: where there is much to do the nodes look for themselves instead.
    IF due_millis <= now_millis + soon AND watch.watched_until < now_millis + brief THEN
        PERFORM pg_notify('punctual_inbox', pg_current_xact_id()::text);
    END IF;
    RETURN task;
END
$$;

-- Nobody has any of the functions but the owner, and whoever is granted `enqueue`.
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA punctual FROM PUBLIC;
