-- Of those that ask at once the second waits for the first, and finds that the time has moved on.
WITH permitted AS (
    UPDATE breakers SET next_probe_at = $4, half_open = true, probe = NULL,
        -- Of too many the one in the middle is forgotten, as by `OpenBreaker::overtake`.
        overtaken = CASE WHEN probe IS NULL THEN overtaken WHEN cardinality(overtaken) < $5 THEN probe || overtaken
            ELSE (probe || overtaken)[1:$5 / 2] || (probe || overtaken)[$5 / 2 + 2:] END
    WHERE tenant = $1 AND target = $2 AND next_probe_at <= $3
    RETURNING 1
)
SELECT EXISTS (SELECT 1 FROM permitted), EXISTS (SELECT 1 FROM breakers WHERE tenant = $1 AND target = $2)
