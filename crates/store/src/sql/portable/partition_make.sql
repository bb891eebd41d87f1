WITH RECURSIVE wanted (number) AS (
    SELECT 0 UNION ALL SELECT number + 1 FROM wanted WHERE number + 1 < CAST($1 AS integer)
)
INSERT INTO partitions (number, term, expires_at)
SELECT number, 0, 0 FROM wanted WHERE true
ON CONFLICT (number) DO NOTHING
