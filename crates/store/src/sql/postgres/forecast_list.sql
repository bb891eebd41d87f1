-- A range of the primary key. A sum is below zero if an old node, which does not count, inserted
-- tasks that a new node has subtracted.
SELECT minute, sum(tasks)::bigint FROM forecast WHERE tenant = $1 AND minute >= $2 AND minute < $3
GROUP BY minute HAVING sum(tasks) > 0 ORDER BY minute
