-- Without a probe it closes whatever its probes say.
WITH closed AS (
    DELETE FROM breakers
    WHERE tenant = $1 AND target = $2 AND ($3::uuid IS NULL OR probe = $3 OR $3 = ANY (overtaken))
    RETURNING tenant, target
), forgotten AS (
    DELETE FROM breaker_counts AS counted USING closed
    WHERE counted.tenant = closed.tenant AND (closed.target = '' OR counted.target = closed.target)
)
SELECT count(*) FROM closed
