-- One round at a time, in a fixed order. Claims and rounds do not wait for each other
-- (`partition_hold.sql`).
SELECT number, owner, term, expires_at FROM partitions ORDER BY number FOR NO KEY UPDATE
