DROP VIEW node_locks;
ALTER TABLE nodes DROP COLUMN gone_at, DROP COLUMN locked_on;
