SELECT body FROM operations WHERE tenant = $1 AND id < $2 ORDER BY id DESC LIMIT $3
