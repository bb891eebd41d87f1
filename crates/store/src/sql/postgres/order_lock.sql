-- Locks the keys, in the order given, and makes those that are not there.
INSERT INTO orders AS o (id) SELECT id FROM unnest($1::uuid[]) AS w (id)
ON CONFLICT (id) DO UPDATE SET id = excluded.id
RETURNING o.id, o.head, o.held_by
