DELETE FROM revived_parents WHERE seq = ?1
