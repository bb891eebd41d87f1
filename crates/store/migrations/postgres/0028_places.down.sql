-- no-transaction
-- Concurrency keys have no effect after this.
UPDATE tasks SET has_turn = true, parked = NULL WHERE parked;
DROP INDEX CONCURRENTLY IF EXISTS tasks_parked;
DROP INDEX CONCURRENTLY IF EXISTS tasks_with_place;
DROP TABLE IF EXISTS places_due;
SET lock_timeout = '10s';
ALTER TABLE gates DROP COLUMN IF EXISTS max_per_key;
ALTER TABLE quarantine
    DROP COLUMN IF EXISTS concurrency,
    DROP COLUMN IF EXISTS concurrency_key,
    DROP COLUMN IF EXISTS parked;
ALTER TABLE history
    DROP COLUMN IF EXISTS concurrency,
    DROP COLUMN IF EXISTS concurrency_key;
ALTER TABLE tasks
    DROP COLUMN IF EXISTS concurrency,
    DROP COLUMN IF EXISTS concurrency_key,
    DROP COLUMN IF EXISTS parked;
RESET lock_timeout;
