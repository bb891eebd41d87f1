-- The columns of a hold are in the order of `beats.rs`.
SELECT
    t.seq, t.lane, t.state, t.version, t.cancel_requested, ifnull(b.timeout_millis, 0),
    t.worker, t.holder, t.node, t.held_since, t.lease_expires_at, t.deadline_at, t.lease_millis
FROM ids AS i CROSS JOIN tasks AS t ON t.seq = i.seq AND t.id = i.id LEFT JOIN bodies AS b ON b.seq = t.seq
WHERE i.id = ?1
