SELECT instant, covers_until, covers_at_least FROM occurrences
WHERE schedule_id = $1 AND covers_until IS NOT NULL AND instant <= $3 AND covers_until > $2
ORDER BY instant LIMIT $4
