WITH gone AS (
    DELETE FROM partition_members WHERE node = $1
)
UPDATE partitions SET owner = NULL, expires_at = $2 WHERE owner = $1
