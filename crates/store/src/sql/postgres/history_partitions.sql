-- The monthly partitions and where they end, as the catalogue spells it.
SELECT c.relname::text, pg_get_expr(c.relpartbound, c.oid)
FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
WHERE i.inhparent = 'punctual.history'::regclass AND c.relname ~ '^history_\d{4}_\d{2}$'
ORDER BY c.relname
