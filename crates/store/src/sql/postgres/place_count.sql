-- How many tasks have a place of each key given, counted up to a bound.
SELECT w.concurrency, (
    SELECT count(*) FROM (
        SELECT 1 FROM tasks AS t
        WHERE t.concurrency = w.concurrency AND t.concurrency IS NOT NULL AND t.state >= 2 /* QUEUED */
        LIMIT w.most
    ) AS counted
)
FROM unnest($1::uuid[], $2::bigint[]) AS w (concurrency, most)
