-- Claims or starts tasks that this transaction has locked. $1 and the arrays from $6 on hold what
-- many tasks have in common; `class` is the index there. Fails if one has changed all the same: the
-- commit is sent without waiting for the answer, and becomes a rollback then. Returns where the rows
-- lie now, with their numbers in the arrays.
WITH taken AS (
    UPDATE tasks AS t SET
        state = ($6::smallint[])[w.class],
        version = w.expected_version + ($7::bigint[])[w.class],
        attempts = t.attempts + ($8::integer[])[w.class],
        cancel_requested = false,
        worker = coalesce(($9::text[])[w.class], t.worker),
        holder = ($10::text[])[w.class],
        node = ($11::bigint[])[w.class],
        held_since = ($1::bigint[])[w.class],
        lease_expires_at = ($12::bigint[])[w.class],
        deadline_at = ($13::bigint[])[w.class],
        lease_millis = ($14::bigint[])[w.class],
        started_at = CASE WHEN ($6::smallint[])[w.class] = 3 THEN ($1::bigint[])[w.class] ELSE t.started_at END,
        trail = coalesce(w.kept_trail, t.trail) || w.trail
    FROM unnest($2::tid[], $3::bigint[], $4::integer[], $5::bytea[], $15::bytea[])
        WITH ORDINALITY AS w (place, expected_version, class, trail, kept_trail, number)
    WHERE t.ctid = w.place AND t.version = w.expected_version
    RETURNING w.number, t.ctid AS place
)
SELECT CASE WHEN count(*) <> cardinality($2::tid[])
    THEN ('a task that was locked has changed; of ' || cardinality($2::tid[]) || ' these remain: ' || count(*))::integer
END, array_agg(number), array_agg(place) FROM taken
