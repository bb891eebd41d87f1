SELECT instant, CAST(origin AS bigint), CAST(outcome AS bigint), reason, detail, task_id, covers_until, covers_at_least,
    decided_at
FROM occurrences WHERE schedule_id = $1 AND instant < $2 ORDER BY instant DESC LIMIT $3
