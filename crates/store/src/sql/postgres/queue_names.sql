-- The names of a tenant's queues behind one: those with tasks at any time, and those that were set.
SELECT name FROM (
    (SELECT DISTINCT queue AS name FROM lanes WHERE tenant = $1 AND queue > $2 ORDER BY queue LIMIT $3)
    UNION
    (SELECT name FROM queues WHERE tenant = $1 AND name > $2 ORDER BY name LIMIT $3)
) AS named
ORDER BY name LIMIT $3
