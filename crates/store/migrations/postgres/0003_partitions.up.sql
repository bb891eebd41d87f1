-- Which node dispatches which queues. A row is never deleted, so that terms only grow.
CREATE TABLE partitions (
    number     integer PRIMARY KEY,
    owner      bigint,          -- NULL: nobody's
    term       bigint NOT NULL, -- of the last owner; zero: there never was one
    expires_at bigint NOT NULL
) WITH (fillfactor = 50);

-- The nodes that want a share of them.
CREATE TABLE partition_members (
    node       bigint PRIMARY KEY,
    expires_at bigint NOT NULL
) WITH (fillfactor = 50);

-- What a node says of itself. One of an older version says nothing, and was first seen when it was last.
ALTER TABLE nodes
    ADD COLUMN name          text   NOT NULL DEFAULT '',
    ADD COLUMN address       text   NOT NULL DEFAULT '',
    ADD COLUMN roles         text   NOT NULL DEFAULT '[]', -- a JSON array
    ADD COLUMN version       text   NOT NULL DEFAULT '',
    ADD COLUMN skew_millis   bigint NOT NULL DEFAULT 0,
    ADD COLUMN first_seen_at bigint;
