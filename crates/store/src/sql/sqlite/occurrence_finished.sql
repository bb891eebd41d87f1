UPDATE occurrences SET is_watched = 0 WHERE schedule_id = ?1 AND instant = ?2 AND is_watched = 1
