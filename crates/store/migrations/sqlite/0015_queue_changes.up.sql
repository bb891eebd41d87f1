-- The changes of queues are numbered, so that a node reads only what changed since it last read. A row is never deleted:
-- the highest number is that of the last change.
ALTER TABLE queues ADD COLUMN change_number INTEGER NOT NULL DEFAULT 1;
CREATE INDEX queues_by_change ON queues (change_number);
