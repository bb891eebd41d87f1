-- A node that takes partitions is not gone: nobody may reap what it runs from now on.
WITH gone AS (
    DELETE FROM partition_members WHERE expires_at <= $2 AND node <> $1
), here AS (
    INSERT INTO partition_members (node, expires_at) VALUES ($1, $3)
    ON CONFLICT (node) DO UPDATE SET expires_at = excluded.expires_at
), back AS (
    UPDATE nodes SET gone_at = NULL WHERE id = $1 AND gone_at IS NOT NULL
)
SELECT node, expires_at FROM partition_members WHERE expires_at > $2 AND node <> $1
