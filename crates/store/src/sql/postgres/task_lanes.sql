SELECT t.id, t.lane FROM unnest($1::uuid[]) AS w (id) JOIN tasks AS t ON t.id = w.id
UNION ALL
SELECT h.id, h.lane FROM unnest($1::uuid[]) AS w (id) JOIN history AS h ON h.id = w.id
