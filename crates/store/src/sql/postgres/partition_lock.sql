-- One turn at a time, in a fixed order. Claims are not in the way of it, nor it in theirs (`partition_hold.sql`).
SELECT number, owner, term, expires_at FROM partitions ORDER BY number FOR NO KEY UPDATE
