-- Ordering keys and dependencies. Tasks are named by their numbers (`seq`), keys by a digest of tenant and key.
ALTER TABLE tasks ADD COLUMN has_turn INTEGER NOT NULL DEFAULT 1; -- only the resolver sets it, of tasks with an ordering key
ALTER TABLE tasks ADD COLUMN awaited INTEGER; -- others may depend on it: its end is told
ALTER TABLE tasks ADD COLUMN blockers INTEGER; -- how many of those that it depends on are waited for
ALTER TABLE tasks ADD COLUMN ordering BLOB;

ALTER TABLE bodies ADD COLUMN ordering_key TEXT;
ALTER TABLE bodies ADD COLUMN depends_on BLOB; -- ids, 16 bytes each
ALTER TABLE bodies ADD COLUMN on_dependency_failure TEXT; -- NULL: cancel

ALTER TABLE quarantine ADD COLUMN has_turn INTEGER;
ALTER TABLE quarantine ADD COLUMN awaited INTEGER;
ALTER TABLE quarantine ADD COLUMN blockers INTEGER;
ALTER TABLE quarantine ADD COLUMN ordering BLOB;

-- What can be claimed has its turn.
DROP INDEX tasks_waiting;
CREATE INDEX tasks_waiting ON tasks (lane, due_at) WHERE state = 1 AND has_turn = 1;
-- The tasks of a key that wait, in their order.
CREATE INDEX tasks_ordered ON tasks (ordering, execute_at) WHERE ordering IS NOT NULL AND state = 1;

-- The ordering keys that live tasks have.
CREATE TABLE orders (
    id      BLOB PRIMARY KEY NOT NULL,
    head    INTEGER, -- the task that has the turn
    held_by INTEGER  -- the dead letter that all others wait behind
) STRICT, WITHOUT ROWID;

CREATE INDEX orders_held ON orders (id) WHERE held_by IS NOT NULL;

-- Keys of which it may be another's turn: written in the transaction that is the reason.
CREATE TABLE orders_due (
    seq         INTEGER PRIMARY KEY,
    ordering    BLOB NOT NULL,
    dead_letter INTEGER -- the task with the turn that became one
) STRICT;

-- Who waits for whom. An edge goes when its parent's end is resolved, or its child comes to rest.
CREATE TABLE dependencies (
    parent INTEGER NOT NULL,
    child  INTEGER NOT NULL,
    PRIMARY KEY (parent, child)
) STRICT, WITHOUT ROWID;

-- Tasks that came to rest and may be waited for: as `orders_due`.
CREATE TABLE settled_parents (
    seq    INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    state  INTEGER NOT NULL
) STRICT;

-- Dead letters whose children wait for them to be driven again.
CREATE TABLE held_parents (
    parent INTEGER PRIMARY KEY
) STRICT;
