SELECT look_at FROM schedules WHERE look_at IS NOT NULL AND look_at > $1 ORDER BY look_at, id LIMIT 1
