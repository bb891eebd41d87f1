INSERT INTO probe (only_one, checked_at) VALUES (1, $1)
ON CONFLICT (only_one) DO UPDATE SET checked_at = excluded.checked_at
RETURNING only_one
