-- No column of `tasks_by_time` is set here: setting it would move its index entry, changed or not.
UPDATE tasks SET
    state = ?2,
    version = ?3,
    attempts = ifnull(?4, attempts),
    crashes = ifnull(?5, crashes),
    cancel_requested = 0,
    due_at = ifnull(?6, due_at),
    worker = ifnull(?7, worker),
    holder = ?8,
    node = ?9,
    held_since = ?10,
    lease_expires_at = ?11,
    deadline_at = ?12,
    lease_millis = ?13,
    started_at = ifnull(?14, started_at),
    trail = CAST(ifnull(?16, trail) || ?15 AS BLOB)
WHERE seq = ?1
