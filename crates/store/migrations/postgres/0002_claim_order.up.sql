-- no-transaction
-- Tasks due at the same instant are claimed in the order of their submission. Made while others write; what an attempt
-- that was broken off has left is made anew.
DROP INDEX CONCURRENTLY IF EXISTS tasks_waiting;
CREATE INDEX CONCURRENTLY tasks_waiting ON tasks (lane, due_at, seq) WHERE state = 1;
