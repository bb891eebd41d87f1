-- no-transaction
-- A list of a tenant with few tasks reads them by their lanes. Tasks that can be claimed are in `tasks_waiting`, so an
-- ordinary submission writes to no further index. Built while others write. A build that failed
-- leaves an invalid index, which is dropped first.
DROP INDEX CONCURRENTLY IF EXISTS tasks_unclaimable;
CREATE INDEX CONCURRENTLY tasks_unclaimable ON tasks (lane) WHERE state = 0 OR (state = 1 AND NOT has_turn);
