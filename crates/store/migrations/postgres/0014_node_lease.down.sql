ALTER TABLE nodes DROP COLUMN lease_millis;
