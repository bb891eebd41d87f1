DELETE FROM workers WHERE last_seen_at < $1
