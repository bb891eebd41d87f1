-- Notes that tasks which others may depend on have finished.
INSERT INTO settled_parents (parent, state)
SELECT parent, state FROM unnest($1::uuid[], $2::smallint[]) AS w (parent, state)
RETURNING seq
