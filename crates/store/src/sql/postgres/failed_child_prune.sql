DELETE FROM failed_children AS f
USING (SELECT parent, child FROM failed_children WHERE failed_at < $1 ORDER BY failed_at LIMIT $2) AS past
WHERE f.parent = past.parent AND f.child = past.child
