-- The oldest notes from a number on that nobody else is at.
SELECT seq, parent, state FROM settled_parents WHERE seq >= $1 ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED
