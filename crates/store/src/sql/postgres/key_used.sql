-- The last use of each key, which only grows. A row that another node writes is left to that node: two nodes that write
-- the same keys in different orders must not wait for each other.
UPDATE api_keys AS k SET last_used_at = used.at
FROM (
    SELECT a.id, u.at
    FROM json_to_recordset(CAST(CAST($1 AS text) AS json)) AS u (id text, at bigint)
    JOIN api_keys AS a ON a.id = u.id
    WHERE COALESCE(a.last_used_at, 0) < u.at
    FOR UPDATE OF a SKIP LOCKED
) AS used
WHERE k.id = used.id
