ALTER TABLE breakers DROP COLUMN last_probe_at;
ALTER TABLE breakers DROP COLUMN last_probe_error;
