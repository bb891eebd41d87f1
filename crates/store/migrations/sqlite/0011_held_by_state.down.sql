DROP INDEX tasks_held;
CREATE INDEX tasks_held ON tasks (node, lease_expires_at) WHERE lease_expires_at IS NOT NULL;
