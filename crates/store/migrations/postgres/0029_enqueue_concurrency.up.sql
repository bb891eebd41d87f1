-- The function is built again with two arguments more; the rights to call it stay.
ALTER FUNCTION enqueue RENAME TO enqueue_before;

-- Submits a task that exists if and only if the caller's transaction commits; gives its id. The arguments are the fields
-- of POST /v1/tasks, and NULL leaves one to its default. The same key with the same content gives the first task's id.
CREATE FUNCTION enqueue(
    type                  text,
    payload               jsonb              DEFAULT NULL,
    execute_at            timestamptz        DEFAULT NULL,
    idempotency_key       text               DEFAULT NULL,
    queue                 text               DEFAULT NULL,
    tenant                text               DEFAULT NULL,
    priority              integer            DEFAULT NULL,
    delay_seconds         numeric            DEFAULT NULL,
    expires_at            timestamptz        DEFAULT NULL,
    timeout_seconds       numeric            DEFAULT NULL,
    callback_url          text               DEFAULT NULL,
    callback_headers      jsonb              DEFAULT NULL,
    metadata              jsonb              DEFAULT NULL,
    retry_policy          jsonb              DEFAULT NULL,
    ordering_key          text               DEFAULT NULL,
    depends_on            anycompatiblearray DEFAULT NULL::text[], -- of uuid, or of text
    on_dependency_failure text               DEFAULT NULL,
    concurrency_key       text               DEFAULT NULL,
    callback_body         text               DEFAULT NULL
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
    parents    uuid[];
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
    IF length(enqueue.ordering_key) NOT BETWEEN 1 AND 255
        OR enqueue.ordering_key ~ '[\u0001-\u001f\u007f-\u009f]'
    THEN
        PERFORM inbox_refuse(format('ordering_key %L is not acceptable', left(enqueue.ordering_key, 100)),
            'It must be 1 to 255 characters, none of them a control character.');
    END IF;
    IF length(enqueue.concurrency_key) NOT BETWEEN 1 AND 255
        OR enqueue.concurrency_key ~ '[\u0001-\u001f\u007f-\u009f]'
    THEN
        PERFORM inbox_refuse(format('concurrency_key %L is not acceptable', left(enqueue.concurrency_key, 100)),
            'It must be 1 to 255 characters, none of them a control character.');
    END IF;
    IF enqueue.on_dependency_failure NOT IN ('cancel', 'run', 'fail') THEN
        PERFORM inbox_refuse(
            format('on_dependency_failure %L is not acceptable', left(enqueue.on_dependency_failure, 100)),
            'It is cancel, run or fail.');
    END IF;
    parents := inbox_check_dependencies(whose, enqueue.depends_on::text[]);
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
    ELSIF enqueue.callback_url IS NULL AND enqueue.callback_body = 'envelope' THEN
        PERFORM inbox_refuse('callback_body is given without a callback_url', 'Give a callback_url beside it.');
    END IF;
    IF enqueue.callback_body NOT IN ('payload', 'envelope') THEN
        PERFORM inbox_refuse(
            format('callback_body %L is not acceptable', left(enqueue.callback_body, 100)),
            'It is payload or envelope.');
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
        'callback_body', enqueue.callback_body,
        'metadata', inbox_check_metadata(enqueue.metadata),
        'retry_policy', inbox_check_retry_policy(enqueue.retry_policy),
        'ordering_key', enqueue.ordering_key,
        'depends_on', (SELECT jsonb_agg('task_' || p.id ORDER BY p.id) FROM unnest(parents) AS p (id)),
        'on_dependency_failure', enqueue.on_dependency_failure,
        'concurrency_key', enqueue.concurrency_key
    )) || jsonb_build_object('payload', coalesce(enqueue.payload, 'null'));

    IF enqueue.idempotency_key IS NOT NULL THEN
        content := sha256(convert_to(submission, 'UTF8'));
        -- Waits for a transaction that is about to use the key.
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

    -- A dependency takes more than its id when the task is made.
    INSERT INTO inbox (id, created_at, bytes, tenant, key, submission, parents)
    VALUES (task, now_millis, octet_length(submission) + 128 * coalesce(cardinality(parents), 0), whose,
        enqueue.idempotency_key, submission, parents);
    -- Once a transaction, however often it enqueues. Transactions that notify commit one after the other in the whole
    -- of the server: where there is much to do the nodes look for themselves instead.
    IF due_millis <= now_millis + soon AND watch.watched_until < now_millis + brief THEN
        PERFORM pg_notify('punctual_inbox', pg_current_xact_id()::text);
    END IF;
    RETURN task;
END
$$;

REVOKE ALL ON FUNCTION enqueue FROM PUBLIC;

DO $$
DECLARE
    had record;
BEGIN
    FOR had IN
        SELECT a.grantee, a.is_grantable FROM pg_proc AS p, aclexplode(p.proacl) AS a
        WHERE p.oid = 'enqueue_before'::regproc AND a.grantee <> p.proowner
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION enqueue TO %s %s',
            CASE WHEN had.grantee = 0 THEN 'PUBLIC' ELSE had.grantee::regrole::text END,
            CASE WHEN had.is_grantable THEN 'WITH GRANT OPTION' END);
    END LOOP;
END
$$;

DROP FUNCTION enqueue_before;
