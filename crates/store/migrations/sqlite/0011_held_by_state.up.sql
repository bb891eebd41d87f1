-- What is held by its state and has no end of its hold, which only damage can make, has to be found too.
DROP INDEX tasks_held;
CREATE INDEX tasks_held ON tasks (node, lease_expires_at) WHERE state >= 2;
