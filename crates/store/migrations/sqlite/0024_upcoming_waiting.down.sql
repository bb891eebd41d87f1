DROP INDEX tasks_unclaimable;
CREATE INDEX tasks_unclaimable ON tasks (lane, due_at) WHERE state = 0 OR (state = 1 AND has_turn = 0);
