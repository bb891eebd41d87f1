-- Of one month, by id: $1 is where it begins and $2 where it ends, so that the others are not looked at.
SELECT id, completed_at
FROM history
WHERE completed_at >= $1 AND completed_at < $2 AND id > $3 AND id < $4
ORDER BY id
LIMIT $5
