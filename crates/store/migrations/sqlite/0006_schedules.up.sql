-- Recurring schedules. Every write moves the revision, and is conditional on it.
CREATE TABLE schedules (
    id            BLOB    PRIMARY KEY NOT NULL CHECK (length(id) = 16),
    tenant        TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    version       INTEGER NOT NULL, -- grows with every edit, pause and resume
    revision      INTEGER NOT NULL, -- grows with every write, turns included
    created_at    INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL,
    next_run_at   INTEGER,          -- the first instant that is not decided; NULL: nothing is to come
    look_at       INTEGER,          -- when the cron loop has to look at it next; NULL: not at all
    last_run_at   INTEGER,
    run_count     INTEGER NOT NULL,
    missed_count  INTEGER NOT NULL,
    skipped_count INTEGER NOT NULL,
    paused_at     INTEGER,          -- NULL: it is not paused
    pause_reason  TEXT,
    definition    TEXT    NOT NULL, -- JSON
    UNIQUE (tenant, name)
) STRICT;

CREATE INDEX schedules_to_look_at ON schedules (look_at, id) WHERE look_at IS NOT NULL;

-- What became of each instant. The key is the reason why none fires twice.
CREATE TABLE occurrences (
    schedule_id     BLOB    NOT NULL,
    instant         INTEGER NOT NULL,
    decided_at      INTEGER NOT NULL,
    task_id         BLOB,             -- NULL: no task was made
    covers_until    INTEGER,          -- not NULL: it stands for every instant before this one
    covers_at_least INTEGER,
    origin          INTEGER NOT NULL CHECK (origin BETWEEN 0 AND 2),  -- due, manual, backfill
    outcome         INTEGER NOT NULL CHECK (outcome BETWEEN 0 AND 4), -- buffered, fired, skipped, missed, coalesced
    is_watched      INTEGER NOT NULL, -- its task is not known to have come to rest, and that matters
    reason          TEXT    NOT NULL,
    detail          TEXT,
    PRIMARY KEY (schedule_id, instant)
) STRICT, WITHOUT ROWID;

CREATE INDEX occurrences_buffered ON occurrences (schedule_id, origin, instant) WHERE outcome = 0;
CREATE INDEX occurrences_watched ON occurrences (schedule_id, instant) WHERE is_watched = 1;
CREATE INDEX occurrences_by_age ON occurrences (decided_at) WHERE outcome <> 0 AND is_watched = 0;
