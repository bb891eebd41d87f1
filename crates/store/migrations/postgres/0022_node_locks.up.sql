-- A node holds an advisory lock with the number of its id as long as its process is connected. `locked_on` says on which
-- start of the server it took the lock; a restarted server knows no locks. NULL: it holds none, so its lease alone says
-- whether it lives. `gone_at` is set when another node found the lock dropped.
ALTER TABLE nodes ADD COLUMN locked_on timestamptz, ADD COLUMN gone_at bigint;

-- The locks of the nodes, and the backends that hold them.
CREATE VIEW node_locks AS
SELECT (classid::bigint << 32) | objid::bigint AS node, pid AS backend
FROM pg_locks
WHERE locktype = 'advisory' AND granted AND mode = 'ExclusiveLock' AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
