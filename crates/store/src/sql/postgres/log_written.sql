-- How far the log is written, and the time.
SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint, (extract(epoch FROM clock_timestamp()) * 1000)::bigint
