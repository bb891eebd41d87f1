UPDATE history SET state = ?2, version = ?3, trail = CAST(trail || ?4 AS BLOB) WHERE seq = ?1
