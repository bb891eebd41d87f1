-- no-transaction
-- Concurrency keys: at most so many tasks of a key and queue are QUEUED or RUNNING. They are named by a digest of tenant,
-- queue and key. Built while others write: what an attempt that was broken off has left is taken as it is, an index is
-- built again.
SET lock_timeout = '10s';
-- Most tasks have none of these: they are NULL and cost nothing.
ALTER TABLE tasks
    ADD COLUMN IF NOT EXISTS concurrency uuid,
    ADD COLUMN IF NOT EXISTS concurrency_key text,
    ADD COLUMN IF NOT EXISTS parked boolean; -- it may run but for its key, which is full; then it has no `has_turn`
ALTER TABLE history
    ADD COLUMN IF NOT EXISTS concurrency uuid,
    ADD COLUMN IF NOT EXISTS concurrency_key text;
ALTER TABLE quarantine
    ADD COLUMN IF NOT EXISTS concurrency uuid,
    ADD COLUMN IF NOT EXISTS concurrency_key text,
    ADD COLUMN IF NOT EXISTS parked boolean;
ALTER TABLE gates ADD COLUMN IF NOT EXISTS max_per_key bigint;
RESET lock_timeout;
-- Keys of which a place may be free: written in the transaction that is the reason, worked off by any node.
CREATE TABLE IF NOT EXISTS places_due (
    seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    concurrency uuid NOT NULL,
    places      bigint -- how many tasks to wake; NULL: as many as there are places
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- The tasks that have a place of their key (from QUEUED on). They are counted here, so there is no counter to leak.
DROP INDEX CONCURRENTLY IF EXISTS tasks_with_place;
CREATE INDEX CONCURRENTLY tasks_with_place ON tasks (concurrency) WHERE concurrency IS NOT NULL AND state >= 2;
-- The tasks that wait for a place of their key.
DROP INDEX CONCURRENTLY IF EXISTS tasks_parked;
CREATE INDEX CONCURRENTLY tasks_parked ON tasks (concurrency, due_at, seq) WHERE parked;
