-- The last use of each key, which only grows.
UPDATE api_keys SET last_used_at = used.at
FROM (SELECT value ->> 'id' AS id, value ->> 'at' AS at FROM json_each($1)) AS used
WHERE api_keys.id = used.id AND COALESCE(api_keys.last_used_at, 0) < used.at
