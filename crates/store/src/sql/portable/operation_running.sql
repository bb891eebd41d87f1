SELECT body FROM operations WHERE ended_at IS NULL ORDER BY id LIMIT $1
