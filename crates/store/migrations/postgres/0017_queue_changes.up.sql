-- The changes of queues are numbered, so that a node reads only what changed since it last read. Whoever changes a queue
-- locks the last number until the commit: numbers become visible in their order.
CREATE TABLE queue_changes (
    only_one    integer PRIMARY KEY CHECK (only_one = 1),
    last_number bigint  NOT NULL
);
INSERT INTO queue_changes (only_one, last_number) VALUES (1, 1);

ALTER TABLE queues ADD COLUMN change_number bigint NOT NULL DEFAULT 1;
CREATE INDEX queues_by_change ON queues (change_number);
