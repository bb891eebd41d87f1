-- Which node dispatches which queues. A row is never deleted, so that terms only grow.
CREATE TABLE partitions (
    number     INTEGER PRIMARY KEY,
    owner      INTEGER,          -- NULL: nobody's
    term       INTEGER NOT NULL, -- of the last owner; zero: there never was one
    expires_at INTEGER NOT NULL
) STRICT;

-- The nodes that want a share of them.
CREATE TABLE partition_members (
    node       INTEGER PRIMARY KEY,
    expires_at INTEGER NOT NULL
) STRICT;

-- What a node says of itself. One of an older version says nothing, and was first seen when it was last.
ALTER TABLE nodes ADD COLUMN name TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN address TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN roles TEXT NOT NULL DEFAULT '[]'; -- a JSON array
ALTER TABLE nodes ADD COLUMN version TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN skew_millis INTEGER NOT NULL DEFAULT 0;
ALTER TABLE nodes ADD COLUMN first_seen_at INTEGER;
