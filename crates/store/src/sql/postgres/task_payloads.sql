SELECT t.id, t.payload FROM unnest($1::uuid[]) AS w (id) JOIN tasks AS t ON t.id = w.id AND t.id = ANY ($1)
