-- The keys that tasks wait for, behind one: a seek in the index for each.
WITH RECURSIVE keys (concurrency, number) AS (
    SELECT (SELECT min(concurrency) FROM tasks INDEXED BY tasks_parked WHERE parked = 1 AND concurrency > ?1), 1
    UNION ALL
    SELECT
        (SELECT min(t.concurrency) FROM tasks AS t INDEXED BY tasks_parked WHERE t.parked = 1 AND t.concurrency > keys.concurrency),
        number + 1
    FROM keys WHERE concurrency IS NOT NULL AND number < ?2
)
SELECT concurrency FROM keys WHERE concurrency IS NOT NULL
