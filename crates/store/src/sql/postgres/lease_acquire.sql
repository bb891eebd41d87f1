-- Its holder may ask again, having missed the answer: it gets the same term.
INSERT INTO leases AS held (name, holder, term, expires_at) VALUES ($1, $2, 1, $4)
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder,
    term = CASE WHEN held.expires_at > $3 THEN held.term ELSE held.term + 1 END,
    expires_at = excluded.expires_at
WHERE held.expires_at <= $3 OR held.holder = $2
RETURNING term
