DROP INDEX tasks_waiting;
CREATE INDEX tasks_waiting ON tasks (lane, due_at, id) WHERE state = 1;
