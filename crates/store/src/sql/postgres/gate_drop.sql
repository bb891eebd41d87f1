DELETE FROM gates WHERE tenant = $1 AND queue = $2
