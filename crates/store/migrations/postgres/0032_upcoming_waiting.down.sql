-- no-transaction
DROP INDEX CONCURRENTLY IF EXISTS tasks_unclaimable_by_due;
CREATE INDEX CONCURRENTLY tasks_unclaimable_by_due ON tasks (lane, due_at, seq)
    WHERE state = 0 OR (state = 1 AND NOT has_turn);
DROP INDEX CONCURRENTLY IF EXISTS tasks_unclaimable;
ALTER INDEX tasks_unclaimable_by_due RENAME TO tasks_unclaimable;
