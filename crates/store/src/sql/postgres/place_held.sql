-- How many tasks have a place of a key, counted up to a bound.
SELECT count(*) FROM (
    SELECT 1 FROM tasks WHERE concurrency = $1 AND concurrency IS NOT NULL AND state >= 2 /* QUEUED */ LIMIT $2
) AS counted
