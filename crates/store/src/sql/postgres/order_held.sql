-- Ordering keys that a dead letter holds, behind a key.
SELECT id, held_by FROM orders WHERE held_by IS NOT NULL AND id > $1 ORDER BY id LIMIT $2
