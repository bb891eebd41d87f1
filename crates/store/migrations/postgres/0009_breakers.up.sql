-- Breakers that are open; one that is closed is not here. With an empty target it stands over everything of the tenant.
CREATE TABLE breakers (
    tenant        text    COLLATE "C" NOT NULL,
    target        text    COLLATE "C" NOT NULL,
    opened_at     bigint  NOT NULL,
    next_probe_at bigint  NOT NULL,
    ok            bigint  NOT NULL, -- what was counted when it opened
    failed        bigint  NOT NULL,
    reason        text    NOT NULL,
    half_open     boolean NOT NULL, -- a probe is under way
    probe         uuid,             -- the task that is the probe, once it is known
    PRIMARY KEY (tenant, target)
);

-- What each node has counted in a slot of the window, of tenants at which something fails. Rows are rewritten every
-- second and in their place.
CREATE TABLE breaker_counts (
    tenant  text   COLLATE "C" NOT NULL,
    target  text   COLLATE "C" NOT NULL, -- '': of pull workers, and of targets at which nothing failed
    slot_at bigint NOT NULL,
    node    bigint NOT NULL,
    ok      bigint NOT NULL,
    failed  bigint NOT NULL,
    PRIMARY KEY (tenant, target, slot_at, node)
) WITH (fillfactor = 50);
