INSERT INTO dependencies (parent, child)
SELECT parent, child FROM unnest($1::uuid[], $2::uuid[]) AS w (parent, child)
ON CONFLICT (parent, child) DO NOTHING
