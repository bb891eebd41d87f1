SELECT ifnull(max(seq), 0) FROM bodies
