INSERT INTO partitions (number, term, expires_at)
SELECT number, 0, 0 FROM generate_series(0, $1::integer - 1) AS g (number)
ON CONFLICT (number) DO NOTHING
