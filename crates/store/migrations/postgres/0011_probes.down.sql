ALTER TABLE breakers DROP COLUMN last_probe_at, DROP COLUMN last_probe_error;
