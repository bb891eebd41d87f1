UPDATE partitions AS p SET
    owner = w.value ->> 'owner',
    term = w.value ->> 'term',
    expires_at = w.value ->> 'expires_at'
FROM json_each($1) AS w
WHERE p.number = w.value ->> 'number'
