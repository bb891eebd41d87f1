-- Only if the row is still as it was read. The counts go with the breaker.
WITH closed AS (
    DELETE FROM breakers
    WHERE tenant = $1 AND target = $2 AND opened_at = $3 AND next_probe_at = $4 AND half_open = $5
        AND probe IS NOT DISTINCT FROM $6 AND overtaken = $7
    RETURNING tenant, target
), forgotten AS (
    DELETE FROM breaker_counts AS counted USING closed
    WHERE counted.tenant = closed.tenant AND (closed.target = '' OR counted.target = closed.target)
)
SELECT 1 FROM closed
