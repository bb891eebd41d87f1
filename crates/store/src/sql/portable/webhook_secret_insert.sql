-- Nothing if the number is taken, or the tenant has the secret already.
INSERT INTO webhook_secrets (tenant, number, id, created_at, last_digits, secret)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT DO NOTHING
