-- Tasks that wait for their turn are listed by when they are due. BLOCKED ones are apart in the index, so that they are
-- not read for that.
DROP INDEX tasks_unclaimable;
CREATE INDEX tasks_unclaimable ON tasks (lane, state, due_at) WHERE state = 0 OR (state = 1 AND has_turn = 0);
