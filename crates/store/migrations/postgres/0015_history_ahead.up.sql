-- As `history_ahead` with two arguments, but it moves at most `most` rows of a month, so that it ends soon. A month of
-- which the rest has caught more is left to the rest: its rows are pruned one by one.
CREATE FUNCTION history_ahead(now_millis bigint, months integer, most bigint) RETURNS integer
LANGUAGE plpgsql SET search_path = punctual, pg_catalog AS $$
DECLARE
    first timestamp := date_trunc('month', to_timestamp(now_millis / 1000.0) AT TIME ZONE 'UTC');
    begins timestamp;
    low bigint;
    high bigint;
    name text;
    caught bigint;
    made integer := 0;
BEGIN
    FOR ahead IN 0 .. months - 1 LOOP
        begins := first + make_interval(months => ahead);
        name := 'history_' || to_char(begins, 'YYYY_MM');
        CONTINUE WHEN to_regclass(format('punctual.%I', name)) IS NOT NULL;
        low := extract(epoch FROM begins AT TIME ZONE 'UTC') * 1000;
        high := extract(epoch FROM (begins + interval '1 month') AT TIME ZONE 'UTC') * 1000;
        -- Else a row that is caught from now on would be in the way.
        LOCK TABLE history_rest IN SHARE ROW EXCLUSIVE MODE;
        SELECT count(*) INTO caught
        FROM (SELECT FROM history_rest WHERE completed_at >= low AND completed_at < high LIMIT most + 1) AS r;
        CONTINUE WHEN caught > most;
        EXECUTE format('CREATE TABLE %I (LIKE history INCLUDING ALL)', name);
        IF caught > 0 THEN
            EXECUTE format(
                'WITH caught AS (DELETE FROM history_rest WHERE completed_at >= %s AND completed_at < %s RETURNING *)
                 INSERT INTO %I SELECT * FROM caught', low, high, name);
        END IF;
        EXECUTE format('ALTER TABLE history ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', name, low, high);
        made := made + 1;
    END LOOP;
    RETURN made;
END
$$;
REVOKE ALL ON FUNCTION history_ahead(bigint, integer, bigint) FROM PUBLIC;
