-- In the order given, which prevents deadlocks.
SELECT t.id, t.lane, t.due_at FROM unnest($1::uuid[]) AS w (id) JOIN tasks AS t ON t.id = w.id AND t.id = ANY ($1) FOR UPDATE OF t
