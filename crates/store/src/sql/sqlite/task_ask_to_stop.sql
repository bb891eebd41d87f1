UPDATE tasks SET version = ?2, cancel_requested = 1, trail = CAST(trail || ?3 AS BLOB) WHERE seq = ?1
