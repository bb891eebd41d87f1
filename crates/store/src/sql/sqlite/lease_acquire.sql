-- A holder that missed the answer may ask again: it gets the same term.
INSERT INTO leases (name, holder, term, expires_at) VALUES ($1, $2, 1, $4)
ON CONFLICT (name) DO UPDATE SET
    holder = excluded.holder,
    term = term + (leases.expires_at <= $3),
    expires_at = excluded.expires_at
WHERE leases.expires_at <= $3 OR leases.holder = excluded.holder
RETURNING term
