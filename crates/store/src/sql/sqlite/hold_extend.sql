UPDATE tasks SET
    lease_expires_at = ?2,
    progress = ifnull(?3, progress),
    checkpoint = ifnull(?4, checkpoint),
    node = ?5,
    deadline_at = ?6
WHERE seq = ?1
