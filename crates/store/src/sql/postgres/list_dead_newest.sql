SELECT id, lane, state, execute_at FROM history WHERE state = 7 /* DEAD_LETTERED */ AND id < $1 ORDER BY id DESC LIMIT $2
