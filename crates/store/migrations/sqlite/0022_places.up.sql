-- Concurrency keys: at most so many tasks of a key and queue are QUEUED or RUNNING. They are named by a digest of tenant,
-- queue and key.
ALTER TABLE tasks ADD COLUMN concurrency BLOB;
ALTER TABLE tasks ADD COLUMN parked INTEGER; -- 1: it may run but for its key, which is full; then it has no `has_turn`
ALTER TABLE bodies ADD COLUMN concurrency_key TEXT;
ALTER TABLE quarantine ADD COLUMN concurrency BLOB;
ALTER TABLE quarantine ADD COLUMN parked INTEGER;

-- The tasks that have a place of their key (from QUEUED on). They are counted here, so there is no counter to leak.
CREATE INDEX tasks_with_place ON tasks (concurrency) WHERE concurrency IS NOT NULL AND state >= 2;
-- The tasks that wait for a place of their key.
CREATE INDEX tasks_parked ON tasks (concurrency, due_at) WHERE parked = 1;

-- Keys of which a place may be free: written in the transaction that is the reason.
CREATE TABLE places_due (
    seq         INTEGER PRIMARY KEY,
    concurrency BLOB NOT NULL,
    places      INTEGER -- how many tasks to wake; NULL: as many as there are places
) STRICT;
