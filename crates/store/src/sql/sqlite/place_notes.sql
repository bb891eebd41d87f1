SELECT seq, concurrency, places FROM places_due ORDER BY seq LIMIT ?1
