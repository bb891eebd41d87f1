-- no-transaction
DROP INDEX CONCURRENTLY IF EXISTS tasks_unclaimable_by_lane;
CREATE INDEX CONCURRENTLY tasks_unclaimable_by_lane ON tasks (lane) WHERE state = 0 OR (state = 1 AND NOT has_turn);
DROP INDEX CONCURRENTLY IF EXISTS tasks_unclaimable;
ALTER INDEX tasks_unclaimable_by_lane RENAME TO tasks_unclaimable;
