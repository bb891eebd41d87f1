SELECT seq, parent FROM revived_parents ORDER BY seq LIMIT ?1
