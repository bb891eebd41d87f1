-- What queues are set to. A queue that is not here is set to nothing and not paused.
CREATE TABLE queues (
    tenant       text   COLLATE "C" NOT NULL,
    name         text   COLLATE "C" NOT NULL,
    settings     text   NOT NULL, -- JSON
    paused_at    bigint,          -- NULL: it is not paused
    paused_by    text,
    pause_reason text,
    paused_until bigint,          -- NULL: until it is resumed
    version      bigint NOT NULL,
    PRIMARY KEY (tenant, name)
);

-- One for each queue that restricts anything. Whoever takes tasks from such a queue, or decides whether it has room for
-- another, locks it; and writes the tokens, so that it is rewritten often and in its place.
CREATE TABLE gates (
    tenant          text    COLLATE "C" NOT NULL,
    queue           text    COLLATE "C" NOT NULL,
    max_concurrency bigint,
    per_second      double precision,
    burst           bigint,
    tokens          double precision, -- NULL: nobody has taken from the bucket yet, it is full
    refilled_at     bigint,
    max_depth       bigint,
    is_paused       boolean NOT NULL,
    paused_until    bigint,
    PRIMARY KEY (tenant, queue)
) WITH (fillfactor = 50);

CREATE INDEX lanes_by_queue ON lanes (tenant, queue);
