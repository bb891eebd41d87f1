-- The oldest rows of the inbox that no other transaction has locked: at most $1 rows and about $2
-- bytes.
WITH first AS MATERIALIZED (
    SELECT id, xact, seq, bytes FROM inbox ORDER BY xact, seq LIMIT $1 FOR UPDATE SKIP LOCKED
)
SELECT i.id, i.tenant, i.created_at, i.submission, i.bytes, i.parents
FROM (SELECT id, xact, seq, sum(bytes) OVER (ORDER BY xact, seq) - bytes AS before FROM first) AS f
JOIN inbox AS i ON i.id = f.id
WHERE f.before < $2::bigint
ORDER BY f.xact, f.seq
