-- Removes rows from the inbox. Those with a reason are refused: they are kept for inspection, and
-- their keys can be used again.
WITH gone AS (
    DELETE FROM inbox AS i USING unnest($1::uuid[], $2::text[]) AS w (id, reason)
    WHERE i.id = w.id
    RETURNING i.id, i.tenant, i.key, i.created_at, i.submission, w.reason
), freed AS (
    DELETE FROM inbox_keys AS k USING gone AS g
    WHERE g.reason IS NOT NULL AND k.tenant = g.tenant AND k.key = g.key AND k.task_id = g.id
)
INSERT INTO inbox_refused (id, tenant, created_at, refused_at, submission, reason)
SELECT id, tenant, created_at, $3, submission, reason FROM gone WHERE reason IS NOT NULL
ON CONFLICT (id) DO UPDATE
SET refused_at = excluded.refused_at, submission = excluded.submission, reason = excluded.reason
