DELETE FROM ledger WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM ledger WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2
))
