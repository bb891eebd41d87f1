-- Breakers that are open; one that is closed is not here. With an empty target it stands over everything of the tenant.
CREATE TABLE breakers (
    tenant        TEXT    NOT NULL,
    target        TEXT    NOT NULL,
    opened_at     INTEGER NOT NULL,
    next_probe_at INTEGER NOT NULL,
    ok            INTEGER NOT NULL, -- what was counted when it opened
    failed        INTEGER NOT NULL,
    reason        TEXT    NOT NULL,
    half_open     INTEGER NOT NULL, -- 1: a probe is under way
    probe         BLOB,             -- the task that is the probe, once it is known
    PRIMARY KEY (tenant, target)
) STRICT, WITHOUT ROWID;

-- What each node has counted in a slot of the window, of tenants at which something fails.
CREATE TABLE breaker_counts (
    tenant  TEXT    NOT NULL,
    target  TEXT    NOT NULL, -- '': of pull workers, and of targets at which nothing failed
    slot_at INTEGER NOT NULL,
    node    INTEGER NOT NULL,
    ok      INTEGER NOT NULL,
    failed  INTEGER NOT NULL,
    PRIMARY KEY (tenant, target, slot_at, node)
) STRICT, WITHOUT ROWID;
