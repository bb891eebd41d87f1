-- Probes that the next one has overtaken before they ended, the latest first, 16 bytes each: their success closes the breaker, too.
ALTER TABLE breakers ADD COLUMN overtaken BLOB NOT NULL DEFAULT x'';
