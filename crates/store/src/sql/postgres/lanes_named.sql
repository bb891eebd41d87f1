-- The lanes of rows that are in no month, and of quarantined ones. Both are few.
(
    SELECT lane FROM history_rest WHERE id > '00000000-0000-0000-0000-000000000000' ORDER BY id LIMIT $1
)
UNION ALL
(
    SELECT lane FROM quarantine WHERE id > '00000000-0000-0000-0000-000000000000' ORDER BY id LIMIT $1
)
