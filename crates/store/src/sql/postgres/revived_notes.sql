-- The oldest notes from a number on that no other transaction has locked.
SELECT seq, parent FROM revived_parents WHERE seq >= $1 ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED
