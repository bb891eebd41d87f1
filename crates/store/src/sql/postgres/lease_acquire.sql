-- A holder that missed the answer may ask again: it gets the same term. An expired lease is not
-- free while its last holder writes under it (`lease_hold.sql`). Its locked row is skipped: waiting
-- would delay everything else on this connection, for long if that holder is frozen.
WITH kept AS (
    UPDATE leases SET expires_at = $4 WHERE name = $1 AND holder = $2 AND expires_at > $3 RETURNING term
), free AS (
    SELECT name FROM leases WHERE name = $1 AND expires_at <= $3 FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE leases AS l SET holder = $2, term = l.term + 1, expires_at = $4
    FROM free WHERE l.name = free.name
    RETURNING l.term
), made AS (
    INSERT INTO leases (name, holder, term, expires_at)
    SELECT $1, $2, 1, $4 WHERE NOT EXISTS (SELECT 1 FROM leases WHERE name = $1)
    ON CONFLICT (name) DO NOTHING
    RETURNING term
)
SELECT term FROM kept UNION ALL SELECT term FROM taken UNION ALL SELECT term FROM made
