-- Cancellations that are done. A submission that was set aside must not be put back once it is
-- cancelled, so it is removed with its cancellation.
WITH done AS (
    DELETE FROM inbox_cancels WHERE seq = ANY ($1) RETURNING task_id
)
DELETE FROM inbox_refused WHERE id IN (SELECT task_id FROM done)
RETURNING id
