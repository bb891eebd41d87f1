INSERT INTO held_parents (parent) SELECT id FROM unnest($1::uuid[]) AS w (id) ON CONFLICT (parent) DO NOTHING
