-- Numbers instead of ids: a task has one `seq` for its whole life, given in the order of submission. Everything about
-- it is found by that number, which makes every tree but two a tree of small integers that grows at its end.

CREATE TABLE lanes (
    id       INTEGER PRIMARY KEY,
    tenant   TEXT    NOT NULL,
    queue    TEXT    NOT NULL,
    kind     TEXT    NOT NULL,
    priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    target   TEXT    NOT NULL, -- '' for pull workers, which have none (NULLs would not be unique)
    UNIQUE (tenant, queue, kind, priority, target)
) STRICT;

CREATE TABLE ids (
    id  BLOB    PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What was submitted. Written once, seldom edited, and left where it is when the task comes to rest.
CREATE TABLE bodies (
    seq              INTEGER PRIMARY KEY,
    created_at       INTEGER NOT NULL,
    payload          TEXT    NOT NULL,
    callback_url     TEXT,
    callback_headers TEXT, -- a JSON object; NULL means none
    retry_policy     TEXT, -- JSON; NULL means the one in `row.rs` that has been the default from the start
    timeout_millis   INTEGER NOT NULL,
    metadata         TEXT, -- a JSON object; NULL means none
    schedule_id      BLOB,
    idempotency_key  TEXT
) STRICT;

-- Live tasks: narrow rows, and gone when the task comes to rest.
CREATE TABLE tasks (
    seq              INTEGER PRIMARY KEY,
    id               BLOB    NOT NULL,
    lane             INTEGER NOT NULL,
    state            INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3), -- BLOCKED, PENDING, QUEUED, RUNNING
    version          INTEGER NOT NULL,
    attempts         INTEGER NOT NULL,
    crashes          INTEGER NOT NULL,
    cancel_requested INTEGER NOT NULL,
    execute_at       INTEGER NOT NULL,
    due_at           INTEGER NOT NULL,
    expires_at       INTEGER,
    worker           TEXT,    -- who ran it last
    holder           TEXT,    -- who holds it, where that is not `worker`
    node             INTEGER,
    held_since       INTEGER,
    lease_expires_at INTEGER, -- NULL: nobody holds it
    deadline_at      INTEGER,
    lease_millis     INTEGER,
    started_at       INTEGER,
    progress         TEXT,
    checkpoint       TEXT,
    trail            BLOB    NOT NULL
) STRICT;

CREATE INDEX tasks_waiting ON tasks (lane, due_at, id) WHERE state = 1;
CREATE INDEX tasks_held ON tasks (node, lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX tasks_expiring ON tasks (expires_at) WHERE expires_at IS NOT NULL AND state <= 1;
CREATE INDEX tasks_by_time ON tasks (execute_at);

-- Tasks that came to rest.
CREATE TABLE history (
    seq          INTEGER PRIMARY KEY,
    id           BLOB    NOT NULL,
    lane         INTEGER NOT NULL,
    state        INTEGER NOT NULL CHECK (state BETWEEN 4 AND 7), -- COMPLETED, CANCELLED, FAILED, DEAD_LETTERED
    version      INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    crashes      INTEGER NOT NULL,
    execute_at   INTEGER NOT NULL,
    due_at       INTEGER NOT NULL,
    expires_at   INTEGER,
    worker       TEXT,
    started_at   INTEGER,
    completed_at INTEGER NOT NULL,
    progress     TEXT,
    checkpoint   TEXT,
    result       TEXT,
    trail        BLOB    NOT NULL
) STRICT;

CREATE INDEX history_by_time ON history (execute_at);
CREATE INDEX history_dead ON history (seq) WHERE state = 7;

-- How many live tasks of a lane are in a state: changed in the transaction that moves them.
CREATE TABLE counts (
    lane  INTEGER NOT NULL,
    state INTEGER NOT NULL,
    tasks INTEGER NOT NULL,
    PRIMARY KEY (lane, state)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
    tenant      TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    task_id     BLOB    NOT NULL,
    fingerprint BLOB    NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, key)
) STRICT, WITHOUT ROWID;

-- Live tasks that could not be read, taken out of the way of the others. The columns are those of `tasks`.
CREATE TABLE quarantine (
    seq              INTEGER PRIMARY KEY,
    id               BLOB    NOT NULL,
    lane             INTEGER NOT NULL,
    state            INTEGER NOT NULL,
    version          INTEGER NOT NULL,
    attempts         INTEGER NOT NULL,
    crashes          INTEGER NOT NULL,
    cancel_requested INTEGER NOT NULL,
    execute_at       INTEGER NOT NULL,
    due_at           INTEGER NOT NULL,
    expires_at       INTEGER,
    worker           TEXT,
    holder           TEXT,
    node             INTEGER,
    held_since       INTEGER,
    lease_expires_at INTEGER,
    deadline_at      INTEGER,
    lease_millis     INTEGER,
    started_at       INTEGER,
    progress         TEXT,
    checkpoint       TEXT,
    trail            BLOB    NOT NULL,
    found_at         INTEGER NOT NULL,
    reason           TEXT    NOT NULL
) STRICT;

CREATE TABLE leases (
    name       TEXT    PRIMARY KEY NOT NULL,
    holder     INTEGER NOT NULL,
    term       INTEGER NOT NULL, -- a row is never deleted, so that terms only grow
    expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE workers (
    tenant        TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    queues        TEXT    NOT NULL, -- a JSON array
    kinds         TEXT    NOT NULL, -- a JSON array
    first_seen_at INTEGER NOT NULL,
    last_seen_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE nodes (
    id           INTEGER PRIMARY KEY,
    last_seen_at INTEGER NOT NULL
) STRICT;

-- What `check` writes to.
CREATE TABLE probe (
    only       INTEGER PRIMARY KEY CHECK (only = 1),
    checked_at INTEGER NOT NULL
) STRICT;
