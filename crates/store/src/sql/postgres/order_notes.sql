-- Takes the oldest notes from a number on that no other transaction has locked.
DELETE FROM orders_due
WHERE seq = ANY (ARRAY(SELECT seq FROM orders_due WHERE seq >= $1 ORDER BY seq LIMIT $2 FOR UPDATE SKIP LOCKED))
RETURNING seq, ordering, dead_letter
