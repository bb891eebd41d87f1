UPDATE partitions AS p SET owner = w.owner, term = w.term, expires_at = w.expires_at
FROM json_to_recordset(CAST(CAST($1 AS text) AS json)) AS w (number integer, owner bigint, term bigint, expires_at bigint)
WHERE p.number = w.number
