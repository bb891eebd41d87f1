-- Bulk operations: one change for every task that a filter matches. The leader works them off.
CREATE TABLE operations (
    id       BLOB    NOT NULL PRIMARY KEY,
    tenant   TEXT    NOT NULL,
    revision INTEGER NOT NULL,
    ended_at INTEGER,          -- NULL: it runs
    body     TEXT    NOT NULL  -- the operation as JSON
) STRICT, WITHOUT ROWID;

CREATE INDEX operations_by_tenant ON operations (tenant, id);
CREATE INDEX operations_running ON operations (id) WHERE ended_at IS NULL;
CREATE INDEX operations_by_end ON operations (ended_at) WHERE ended_at IS NOT NULL;
