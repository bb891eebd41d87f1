-- Notes that tasks have come to rest which others may wait for.
INSERT INTO settled_parents (parent, state)
SELECT parent, state FROM unnest($1::uuid[], $2::smallint[]) AS w (parent, state)
RETURNING seq
