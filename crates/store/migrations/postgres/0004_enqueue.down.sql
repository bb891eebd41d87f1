-- What was enqueued and is no task yet would be lost: it is not taken back from its submitters without a word.
LOCK TABLE inbox, inbox_refused IN ACCESS EXCLUSIVE MODE;

DO $$
DECLARE
    waiting bigint := (SELECT count(*) FROM inbox);
    refused bigint := (SELECT count(*) FROM inbox_refused);
BEGIN
    IF waiting > 0 THEN
        RAISE EXCEPTION '% tasks in punctual.inbox wait to be taken by a node: start one and let it take them, or delete them',
            waiting;
    END IF;
    IF refused > 0 THEN
        RAISE EXCEPTION '% submissions in punctual.inbox_refused were never looked at: settle them and delete them first',
            refused;
    END IF;
END
$$;

GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA punctual TO PUBLIC;

DROP FUNCTION enqueue(
    text, jsonb, timestamptz, text, text, text, integer, numeric, timestamptz, numeric, text, jsonb, jsonb, jsonb
);
DROP FUNCTION inbox_check_retry_policy(jsonb);
DROP FUNCTION inbox_check_metadata(jsonb);
DROP FUNCTION inbox_check_headers(jsonb);
DROP FUNCTION inbox_check_map(text, jsonb, integer);
DROP FUNCTION inbox_is_url(text);
DROP FUNCTION inbox_check_payload(jsonb, integer);
DROP FUNCTION inbox_check_name(text, text);
DROP FUNCTION inbox_duration(text, numeric, bigint, bigint);
DROP FUNCTION inbox_instant(text, timestamptz);
DROP FUNCTION inbox_id(bigint);
DROP FUNCTION inbox_refuse(text, text);
DROP TABLE inbox_watch;
DROP TABLE inbox_refused;
DROP TABLE inbox_keys;
DROP TABLE inbox;
