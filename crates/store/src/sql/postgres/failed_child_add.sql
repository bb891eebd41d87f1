INSERT INTO failed_children (parent, child, failed_at)
SELECT parent, child, $3 FROM unnest($1::uuid[], $2::uuid[]) AS w (parent, child)
ON CONFLICT (parent, child) DO NOTHING
