DELETE FROM inbox_refused WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM inbox_refused WHERE refused_at < $1 ORDER BY refused_at LIMIT $2
))
