-- Only if the row is still as it was read. `breaker_counts_forget.sql` removes the counts, in the
-- same transaction.
DELETE FROM breakers
WHERE tenant = $1 AND target = $2 AND opened_at = $3 AND next_probe_at = $4 AND half_open = $5
    AND probe IS NOT DISTINCT FROM $6 AND overtaken = $7
RETURNING 1
