INSERT INTO partitions (number, term, expires_at) VALUES (?1, 0, 0)
