-- Rows of one month, by id. The bounds of the month, $1 and $2, keep PostgreSQL from reading other
-- partitions.
SELECT id, completed_at
FROM history
WHERE completed_at >= $1 AND completed_at < $2 AND id > $3 AND id < $4
ORDER BY id
LIMIT $5
