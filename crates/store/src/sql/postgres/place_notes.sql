-- Takes the oldest notes from a number on that no other transaction has locked.
DELETE FROM places_due
WHERE seq = ANY (ARRAY(SELECT seq FROM places_due WHERE seq >= $1 ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING seq, concurrency, places
