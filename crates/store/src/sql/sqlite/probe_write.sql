INSERT INTO probe (only, checked_at) VALUES (1, ?1) ON CONFLICT (only) DO UPDATE SET checked_at = excluded.checked_at
