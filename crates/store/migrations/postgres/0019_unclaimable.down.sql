-- no-transaction
DROP INDEX CONCURRENTLY IF EXISTS tasks_unclaimable;
