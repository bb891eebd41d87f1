DELETE FROM nonces
WHERE (key_id, nonce) IN (SELECT key_id, nonce FROM nonces WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)
