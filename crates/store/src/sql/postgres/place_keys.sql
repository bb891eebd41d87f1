-- The keys that tasks wait for, behind one: a seek in the index for each.
WITH RECURSIVE keys (concurrency, number) AS (
    SELECT (SELECT concurrency FROM tasks WHERE parked AND concurrency > $1 ORDER BY concurrency LIMIT 1), 1::bigint
    UNION ALL
    SELECT
        (SELECT t.concurrency FROM tasks AS t WHERE t.parked AND t.concurrency > k.concurrency ORDER BY t.concurrency LIMIT 1),
        k.number + 1
    FROM keys AS k WHERE k.concurrency IS NOT NULL AND k.number < $2
)
SELECT concurrency FROM keys WHERE concurrency IS NOT NULL
