-- Whether this is a standby, whether it shows the presence of a node, how far it has replayed the
-- log, and when the last transaction of that was committed.
SELECT
    pg_is_in_recovery(),
    EXISTS (SELECT FROM nodes WHERE id = $1),
    coalesce((pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::bigint, 0),
    (extract(epoch FROM pg_last_xact_replay_timestamp()) * 1000)::bigint
