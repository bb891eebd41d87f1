DELETE FROM forecast WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM forecast WHERE minute + 0 < $1 ORDER BY minute + 0 LIMIT $2
))
