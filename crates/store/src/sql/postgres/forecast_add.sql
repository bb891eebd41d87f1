-- In a fixed order, which prevents deadlocks. The tenant is looked up lane by lane: a join might
-- read all lanes.
INSERT INTO forecast (tenant, minute, slot, tasks)
SELECT tenant, minute, $4::integer, sum(tasks)::bigint
FROM (
    SELECT (SELECT l.tenant FROM lanes AS l WHERE l.id = a.lane) AS tenant, a.minute, a.tasks
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS a (lane, minute, tasks)
) AS changed
GROUP BY tenant, minute
ORDER BY tenant, minute
ON CONFLICT (tenant, minute, slot) DO UPDATE SET tasks = forecast.tasks + excluded.tasks
