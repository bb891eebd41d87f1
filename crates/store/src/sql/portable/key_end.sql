-- A key ends at an instant, unless it ends before that.
UPDATE api_keys SET expires_at = $3 WHERE id = $1 AND tenant = $2 AND (expires_at IS NULL OR expires_at > $3)
