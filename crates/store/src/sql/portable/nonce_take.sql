INSERT INTO nonces (key_id, nonce, expires_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING
