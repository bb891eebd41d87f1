-- Those of the lanes that do not exist.
SELECT lane FROM unnest($1::bigint[]) AS w (lane) WHERE (SELECT l.id FROM lanes AS l WHERE l.id = w.lane) IS NULL
