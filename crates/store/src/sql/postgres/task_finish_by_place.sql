-- As `task_finish_by_id.sql`, where it is known where the rows should lie. A row that does not lie
-- there any more is left. With `=` for the id the planner would read the whole index of ids where it
-- takes the table for empty. `task_finish.sql` continues.
WITH gone AS (
    DELETE FROM tasks AS t
    USING unnest(
        $1::uuid[], $2::bigint[], $3::integer[], $4::bytea[], $5::text[], $6::integer[], $7::integer[], $12::tid[]
    ) AS w (id, expected_version, class, trail, result, attempts, crashes, place)
    WHERE t.ctid = w.place AND t.id IS NOT DISTINCT FROM w.id AND t.version = w.expected_version AND t.state = ($8::smallint[])[w.class]
