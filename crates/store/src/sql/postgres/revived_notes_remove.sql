DELETE FROM revived_parents WHERE seq = ANY ($1)
