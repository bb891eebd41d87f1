INSERT INTO operations (id, tenant, revision, ended_at, body) VALUES ($1, $2, $3, $4, $5)
