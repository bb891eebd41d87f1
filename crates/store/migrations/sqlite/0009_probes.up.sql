-- How the last probe of an open breaker failed, for operators, and when that was seen; NULL: no probe has failed yet.
ALTER TABLE breakers ADD COLUMN last_probe_at INTEGER;
ALTER TABLE breakers ADD COLUMN last_probe_error TEXT;
