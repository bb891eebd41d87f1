DELETE FROM operations WHERE id IN (SELECT id FROM operations WHERE ended_at < $1 ORDER BY ended_at LIMIT $2)
