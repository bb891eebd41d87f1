-- The partitions that the node owns in these terms. It owns them until this transaction ends:
-- taking one locks its row for update. Renewals do not wait for this lock. In the order given,
-- which prevents deadlocks.
SELECT p.number, p.term FROM unnest($1::integer[], $2::bigint[]) AS w (number, term)
JOIN partitions AS p ON p.number = w.number
WHERE p.owner = $3 AND p.term = w.term
FOR KEY SHARE OF p
