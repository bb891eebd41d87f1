-- Each pair is a flag whether to set the column, and the value, which may be NULL. The callback has one
-- flag for all its columns.
UPDATE bodies SET
    payload = ifnull(?2, payload),
    retry_policy = iif(?3, ?4, retry_policy),
    metadata = iif(?5, ?6, metadata),
    callback_url = iif(?7, ?8, callback_url),
    callback_headers = iif(?7, ?9, callback_headers),
    timeout_millis = ifnull(?10, timeout_millis),
    ordering_key = iif(?11, ?12, ordering_key),
    callback_body = iif(?7, ?13, callback_body)
WHERE seq = ?1
