-- In the order given, which prevents deadlocks. The columns of a hold are in the order of
-- `beats.rs`.
SELECT
    t.id, t.lane, t.state, t.version, t.cancel_requested, t.timeout_millis,
    t.worker, t.holder, t.node, t.held_since, t.lease_expires_at, t.deadline_at, t.lease_millis
FROM unnest($1::uuid[]) AS w (id) JOIN tasks AS t ON t.id = w.id AND t.id = ANY ($1)
FOR UPDATE OF t
