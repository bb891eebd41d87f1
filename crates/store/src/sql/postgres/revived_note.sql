-- Notes that tasks are live again, and their failed children with them.
INSERT INTO revived_parents (parent) SELECT unnest($1::uuid[]) RETURNING seq
