-- What queues are set to. A queue that is not here is set to nothing and not paused.
CREATE TABLE queues (
    tenant       TEXT    NOT NULL,
    name         TEXT    NOT NULL,
    settings     TEXT    NOT NULL, -- JSON
    paused_at    INTEGER,          -- NULL: it is not paused
    paused_by    TEXT,
    pause_reason TEXT,
    paused_until INTEGER,          -- NULL: until it is resumed
    version      INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT, WITHOUT ROWID;

-- The bucket of each queue with a rate limit that somebody has taken from; without one it is full.
CREATE TABLE buckets (
    tenant      TEXT    NOT NULL,
    queue       TEXT    NOT NULL,
    tokens      REAL    NOT NULL,
    refilled_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, queue)
) STRICT, WITHOUT ROWID;
