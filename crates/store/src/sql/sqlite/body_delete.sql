DELETE FROM bodies WHERE seq = ?1
