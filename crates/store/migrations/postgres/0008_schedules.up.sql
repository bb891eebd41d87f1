-- Recurring schedules. Every write moves the revision, and is conditional on it.
CREATE TABLE schedules (
    id            uuid   PRIMARY KEY,
    tenant        text   COLLATE "C" NOT NULL,
    name          text   COLLATE "C" NOT NULL,
    version       bigint NOT NULL, -- grows with every edit, pause and resume
    revision      bigint NOT NULL, -- grows with every write, turns included
    created_at    bigint NOT NULL,
    updated_at    bigint NOT NULL,
    next_run_at   bigint,          -- the first instant that is not decided; NULL: nothing is to come
    look_at       bigint,          -- when the cron loop has to look at it next; NULL: not at all
    last_run_at   bigint,
    run_count     bigint NOT NULL,
    missed_count  bigint NOT NULL,
    skipped_count bigint NOT NULL,
    paused_at     bigint,          -- NULL: it is not paused
    pause_reason  text,
    definition    text   NOT NULL, -- JSON
    UNIQUE (tenant, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX schedules_to_look_at ON schedules (look_at, id) WHERE look_at IS NOT NULL;

-- What became of each instant. The key is the reason why none fires twice.
CREATE TABLE occurrences (
    schedule_id     uuid     NOT NULL,
    instant         bigint   NOT NULL,
    decided_at      bigint   NOT NULL,
    task_id         uuid,               -- NULL: no task was made
    covers_until    bigint,             -- not NULL: it stands for every instant before this one
    covers_at_least bigint,
    origin          smallint NOT NULL CHECK (origin BETWEEN 0 AND 2),  -- due, manual, backfill
    outcome         smallint NOT NULL CHECK (outcome BETWEEN 0 AND 4), -- buffered, fired, skipped, missed, coalesced
    is_watched      boolean  NOT NULL,  -- its task is not known to have come to rest, and that matters
    reason          text     NOT NULL,
    detail          text,
    PRIMARY KEY (schedule_id, instant)
);

CREATE INDEX occurrences_buffered ON occurrences (schedule_id, origin, instant) WHERE outcome = 0;
CREATE INDEX occurrences_watched ON occurrences (schedule_id, instant) WHERE is_watched;
CREATE INDEX occurrences_by_age ON occurrences (decided_at) WHERE outcome <> 0 AND NOT is_watched;
