-- Notes that the turn of keys may pass.
INSERT INTO orders_due (ordering, dead_letter)
SELECT ordering, dead_letter FROM unnest($1::uuid[], $2::uuid[]) AS w (ordering, dead_letter)
RETURNING seq
