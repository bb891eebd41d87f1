-- no-transaction
-- Tasks that wait for their turn are listed by when they are due. BLOCKED ones are apart in the index, so that they are
-- not read for that. Built while others write and read the old one; a build that failed leaves an invalid index, which
-- is dropped first.
DROP INDEX CONCURRENTLY IF EXISTS tasks_unclaimable_by_state;
CREATE INDEX CONCURRENTLY tasks_unclaimable_by_state ON tasks (lane, state, due_at, seq)
    WHERE state = 0 OR (state = 1 AND NOT has_turn);
DROP INDEX CONCURRENTLY IF EXISTS tasks_unclaimable;
ALTER INDEX tasks_unclaimable_by_state RENAME TO tasks_unclaimable;
