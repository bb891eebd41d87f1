UPDATE schedules AS s
SET revision = s.revision + 1, next_run_at = w.next_run_at, look_at = w.look_at,
    last_run_at = greatest(s.last_run_at, w.last_run_at), run_count = s.run_count + w.fired,
    skipped_count = s.skipped_count + w.skipped, missed_count = s.missed_count + w.missed,
    version = s.version + w.is_switched::integer,
    updated_at = CASE WHEN w.is_switched THEN w.decided_at ELSE s.updated_at END,
    paused_at = CASE WHEN w.is_switched THEN w.paused_at ELSE s.paused_at END,
    pause_reason = CASE WHEN w.is_switched THEN w.pause_reason ELSE s.pause_reason END
FROM unnest(
    $1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::boolean[],
    $9::bigint[], $10::text[], $11::bigint[]
) AS w (
    id, next_run_at, look_at, last_run_at, fired, skipped, missed, is_switched, paused_at, pause_reason, decided_at
)
WHERE s.id = w.id
