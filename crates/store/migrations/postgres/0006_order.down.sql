-- no-transaction
-- Tasks with an ordering key run in no order after this; a task that is BLOCKED stays so until somebody cancels it.
DROP INDEX CONCURRENTLY IF EXISTS tasks_without_turns;
CREATE INDEX CONCURRENTLY tasks_without_turns ON tasks (lane, due_at, seq) WHERE state = 1;
DROP INDEX CONCURRENTLY IF EXISTS tasks_waiting;
ALTER INDEX tasks_without_turns RENAME TO tasks_waiting;
DROP INDEX CONCURRENTLY IF EXISTS tasks_ordered;
DROP TABLE IF EXISTS held_parents;
DROP TABLE IF EXISTS settled_parents;
DROP TABLE IF EXISTS dependencies;
DROP TABLE IF EXISTS orders_due;
DROP TABLE IF EXISTS orders;
SET lock_timeout = '10s';
ALTER TABLE quarantine
    DROP COLUMN IF EXISTS has_turn,
    DROP COLUMN IF EXISTS awaited,
    DROP COLUMN IF EXISTS blockers,
    DROP COLUMN IF EXISTS ordering,
    DROP COLUMN IF EXISTS ordering_key,
    DROP COLUMN IF EXISTS depends_on,
    DROP COLUMN IF EXISTS on_dependency_failure;
ALTER TABLE history
    DROP COLUMN IF EXISTS awaited,
    DROP COLUMN IF EXISTS ordering,
    DROP COLUMN IF EXISTS ordering_key,
    DROP COLUMN IF EXISTS depends_on,
    DROP COLUMN IF EXISTS on_dependency_failure;
ALTER TABLE tasks
    DROP COLUMN IF EXISTS has_turn,
    DROP COLUMN IF EXISTS awaited,
    DROP COLUMN IF EXISTS blockers,
    DROP COLUMN IF EXISTS ordering,
    DROP COLUMN IF EXISTS ordering_key,
    DROP COLUMN IF EXISTS depends_on,
    DROP COLUMN IF EXISTS on_dependency_failure;
RESET lock_timeout;
