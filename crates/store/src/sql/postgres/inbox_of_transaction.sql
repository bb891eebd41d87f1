-- The rows that a transaction has put into the inbox and no other transaction has locked: at most
-- $2 rows and about $3 bytes.
WITH first AS MATERIALIZED (
    SELECT id, seq, bytes FROM inbox WHERE xact = $1 ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED
)
SELECT i.id, i.tenant, i.created_at, i.submission, i.bytes, i.parents
FROM (SELECT id, seq, sum(bytes) OVER (ORDER BY seq) - bytes AS before FROM first) AS f
JOIN inbox AS i ON i.id = f.id
WHERE f.before < $3::bigint
ORDER BY f.seq
