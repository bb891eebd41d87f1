DELETE FROM failed_children WHERE (parent, child) IN (
    SELECT parent, child FROM failed_children WHERE failed_at < ?1 ORDER BY failed_at LIMIT ?2
)
