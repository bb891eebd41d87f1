-- Which partitions the node owns in these terms. They are nobody else's before this transaction has ended: whoever takes
-- one locks its row for update. Renewals are not in the way. In the order given, so that nobody waits in a circle.
SELECT p.number, p.term FROM unnest($1::integer[], $2::bigint[]) AS w (number, term)
JOIN partitions AS p ON p.number = w.number
WHERE p.owner = $3 AND p.term = w.term
FOR KEY SHARE OF p
