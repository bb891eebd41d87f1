SELECT id, key FROM lanes WHERE key = ANY($1::bytea[])
