-- How long a node keeps what it has while it is silent: its own setting. Zero: a node of an older version did not say.
ALTER TABLE nodes ADD COLUMN lease_millis bigint NOT NULL DEFAULT 0;
