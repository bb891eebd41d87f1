-- Each pair is a flag whether to set the column, and the value, which may be NULL.
UPDATE bodies SET
    payload = ifnull(?2, payload),
    retry_policy = iif(?3, ?4, retry_policy),
    metadata = iif(?5, ?6, metadata)
WHERE seq = ?1
