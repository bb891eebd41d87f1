-- A range of the primary key. Below zero is what old nodes did not count beside new ones.
SELECT minute, sum(tasks)::bigint FROM forecast WHERE tenant = $1 AND minute >= $2 AND minute < $3
GROUP BY minute HAVING sum(tasks) > 0 ORDER BY minute
