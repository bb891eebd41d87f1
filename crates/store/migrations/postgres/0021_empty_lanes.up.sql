-- Lanes that are empty and named by nothing are removed. `empty_since` is the instant at which the lane was found without
-- tasks and its rows in `counts` were removed. As long as it has none again, no later task was in it.
ALTER TABLE lanes ADD COLUMN empty_since bigint; -- NULL: not found empty yet

-- How many lanes a tenant has: a limit reads it for every new lane. A writer that makes lanes locks the row of their tenant.
CREATE TABLE lane_counts (
    tenant text   COLLATE "C" PRIMARY KEY,
    lanes  bigint NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

CREATE FUNCTION lanes_count() RETURNS trigger
LANGUAGE plpgsql SET search_path = punctual, pg_catalog AS $$
BEGIN
    INSERT INTO lane_counts AS c (tenant, lanes)
    SELECT tenant, CASE TG_OP WHEN 'INSERT' THEN count(*) ELSE -count(*) END
    FROM changed GROUP BY tenant ORDER BY tenant
    ON CONFLICT (tenant) DO UPDATE SET lanes = c.lanes + excluded.lanes;
    RETURN NULL;
END
$$;

CREATE TRIGGER lanes_made AFTER INSERT ON lanes
REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION lanes_count();

CREATE TRIGGER lanes_removed AFTER DELETE ON lanes
REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION lanes_count();

INSERT INTO lane_counts (tenant, lanes)
SELECT tenant, count(*) FROM lanes GROUP BY tenant;

-- Removes those of the lanes that were found empty by an instant and not used since; gives how many. A transaction that
-- puts tasks into lanes locks the table in share mode until it ends. So it is over here, and its counts are seen, or it
-- begins later and misses the lane. Others queue behind the lock, so it is not waited for.
CREATE FUNCTION lanes_remove(lane_ids bigint[], empty_by bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = punctual, pg_catalog SET lock_timeout = '50ms' AS $$
DECLARE
    removed bigint;
BEGIN
    LOCK TABLE lanes IN EXCLUSIVE MODE;
    DELETE FROM lanes AS l
    WHERE l.id = ANY (lane_ids) AND l.empty_since <= empty_by
        AND NOT EXISTS (SELECT FROM counts AS c WHERE c.lane = l.id);
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END
$$;

REVOKE ALL ON FUNCTION lanes_count(), lanes_remove(bigint[], bigint) FROM PUBLIC;
