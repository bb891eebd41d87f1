ALTER TABLE nodes DROP COLUMN name;
ALTER TABLE nodes DROP COLUMN address;
ALTER TABLE nodes DROP COLUMN roles;
ALTER TABLE nodes DROP COLUMN version;
ALTER TABLE nodes DROP COLUMN skew_millis;
ALTER TABLE nodes DROP COLUMN first_seen_at;
DROP TABLE partition_members;
DROP TABLE partitions;
