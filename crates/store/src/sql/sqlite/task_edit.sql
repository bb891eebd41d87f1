-- ?4 says whether to set `expires_at`, which may be set to NULL.
UPDATE tasks SET
    lane = ?2,
    execute_at = ifnull(?3, execute_at),
    expires_at = iif(?4, ?5, expires_at)
WHERE seq = ?1
