SELECT body FROM operations WHERE tenant = $1 AND id = $2
