-- How the last probe of an open breaker failed, for operators.
ALTER TABLE breakers
    ADD COLUMN last_probe_at    bigint, -- when that was seen; NULL: no probe has failed yet
    ADD COLUMN last_probe_error text;
