INSERT INTO counts (lane, state, slot, tasks)
SELECT lane, state, $4::integer, tasks
FROM unnest($1::bigint[], $2::smallint[], $3::bigint[]) AS c (lane, state, tasks)
ON CONFLICT (lane, state, slot) DO UPDATE SET tasks = counts.tasks + excluded.tasks
