-- Lanes that are empty and named by nothing are removed. `empty_since` is the number of the last task of the store when
-- the lane was found without tasks and its rows in `counts` were removed. As long as it has none again, no later task
-- was in it.
ALTER TABLE lanes ADD COLUMN empty_since INTEGER; -- NULL: not found empty yet

-- How many lanes a tenant has: a limit reads it for every new lane.
CREATE TABLE lane_counts (
    tenant TEXT    PRIMARY KEY NOT NULL,
    lanes  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO lane_counts (tenant, lanes)
SELECT tenant, count(*) FROM lanes GROUP BY tenant;

CREATE TRIGGER lanes_made AFTER INSERT ON lanes BEGIN
    INSERT INTO lane_counts (tenant, lanes) VALUES (NEW.tenant, 1)
    ON CONFLICT (tenant) DO UPDATE SET lanes = lanes + 1;
END;

CREATE TRIGGER lanes_removed AFTER DELETE ON lanes BEGIN
    UPDATE lane_counts SET lanes = lanes - 1 WHERE tenant = OLD.tenant;
END;
