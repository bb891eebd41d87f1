-- Makes lanes, the first ones up to as many as their tenant may have; returns the keys of the
-- others. The rows of the tenants are locked first, in a fixed order; a trigger counts the lanes
-- that were made.
WITH wanted AS (
    SELECT *
    FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::smallint[], $6::text[])
        WITH ORDINALITY AS w (key, tenant, queue, kind, priority, target, place)
),
counted AS (
    INSERT INTO lane_counts AS c (tenant, lanes)
    SELECT DISTINCT tenant, 0 FROM wanted ORDER BY tenant
    ON CONFLICT (tenant) DO UPDATE SET lanes = c.lanes
    RETURNING c.tenant, c.lanes
),
numbered AS (
    SELECT w.*, c.lanes + row_number() OVER (PARTITION BY w.tenant ORDER BY w.place) AS number
    FROM wanted AS w JOIN counted AS c ON c.tenant = w.tenant
),
made AS (
    INSERT INTO lanes (key, tenant, queue, kind, priority, target)
    SELECT key, tenant, queue, kind, priority, target FROM numbered WHERE number <= $7::bigint ORDER BY key
    ON CONFLICT (key) DO NOTHING
)
SELECT key FROM numbered WHERE number > $7
