DELETE FROM history WHERE seq = ?1
