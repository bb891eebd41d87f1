-- Finished tasks by number, with the instants by which they are pruned, and their size in bytes.
SELECT
    h.seq, h.completed_at, b.created_at,
    ifnull(octet_length(b.payload), 0) + ifnull(octet_length(h.result), 0) + ifnull(octet_length(h.checkpoint), 0)
FROM history AS h LEFT JOIN bodies AS b ON b.seq = h.seq
WHERE h.seq > ?1
ORDER BY h.seq
LIMIT ?2
