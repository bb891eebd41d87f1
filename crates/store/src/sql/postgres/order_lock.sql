-- Locks the keys in the order given; missing ones are made.
INSERT INTO orders AS o (id) SELECT id FROM unnest($1::uuid[]) AS w (id)
ON CONFLICT (id) DO UPDATE SET id = excluded.id
RETURNING o.id, o.head, o.held_by
