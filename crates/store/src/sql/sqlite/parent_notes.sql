SELECT seq, parent, state FROM settled_parents ORDER BY seq LIMIT ?1
