-- The system identifier of this server and its timeline; no timeline on a standby, which has none
-- of its own yet.
SELECT
    (SELECT system_identifier FROM pg_control_system()),
    CASE WHEN NOT pg_is_in_recovery()
        THEN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint
    END
