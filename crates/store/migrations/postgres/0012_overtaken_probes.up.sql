-- Probes that the next one has overtaken before they ended, the latest first: their success closes the breaker, too.
ALTER TABLE breakers ADD COLUMN overtaken uuid[] NOT NULL DEFAULT '{}';
