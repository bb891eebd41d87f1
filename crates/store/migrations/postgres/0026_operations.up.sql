-- Bulk operations: one change for every task that a filter matches. The leader works them off.
CREATE TABLE operations (
    id       uuid   PRIMARY KEY,
    tenant   text   COLLATE "C" NOT NULL,
    revision bigint NOT NULL,
    ended_at bigint,          -- NULL: it runs
    body     text   NOT NULL  -- the operation as JSON
);

CREATE INDEX operations_by_tenant ON operations (tenant, id);
CREATE INDEX operations_running ON operations (id) WHERE ended_at IS NULL;
CREATE INDEX operations_by_end ON operations (ended_at) WHERE ended_at IS NOT NULL;
