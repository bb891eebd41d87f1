SELECT min(look_at) FROM schedules WHERE look_at IS NOT NULL AND look_at > ?1
