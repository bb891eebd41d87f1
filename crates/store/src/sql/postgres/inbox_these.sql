-- The rows of the inbox with these ids that no other transaction has locked: about $2 bytes.
WITH first AS MATERIALIZED (
    SELECT id, seq, bytes FROM inbox WHERE id = ANY ($1) ORDER BY seq FOR UPDATE SKIP LOCKED
)
SELECT i.id, i.tenant, i.created_at, i.submission, i.bytes, i.parents
FROM (SELECT id, seq, sum(bytes) OVER (ORDER BY seq) - bytes AS before FROM first) AS f
JOIN inbox AS i ON i.id = f.id
WHERE f.before < $2::bigint
ORDER BY f.seq
