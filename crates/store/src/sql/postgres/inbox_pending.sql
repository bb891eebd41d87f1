-- Those of the ids whose submission or cancellation by SQL waits for a node, and whether it is the
-- submission.
SELECT id, true FROM inbox WHERE id = ANY ($1)
UNION ALL
SELECT task_id, false FROM inbox_cancels WHERE task_id = ANY ($1)
