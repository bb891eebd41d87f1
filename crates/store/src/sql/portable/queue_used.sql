SELECT 1 FROM lanes WHERE tenant = $1 AND queue = $2 LIMIT 1
