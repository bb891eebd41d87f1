SELECT t.id, t.lane FROM unnest($1::uuid[]) AS w (id) JOIN tasks AS t ON t.id = w.id AND t.id = ANY ($1)
UNION ALL
SELECT h.id, h.lane FROM unnest($1::uuid[]) AS w (id) JOIN history AS h ON h.id = w.id AND h.id = ANY ($1)
