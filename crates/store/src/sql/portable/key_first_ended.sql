-- A first key that has ended makes room for another one.
UPDATE api_keys SET is_first = NULL WHERE is_first = 1 AND expires_at <= $1
