-- no-transaction
-- Ordering keys and dependencies. Made while others write: what an attempt that was broken off has left is taken as it
-- is, an index made anew.
SET lock_timeout = '10s';
-- What most tasks do not have is NULL, and costs them nothing.
ALTER TABLE tasks
    ADD COLUMN IF NOT EXISTS has_turn boolean NOT NULL DEFAULT true, -- only the resolver sets it, of tasks with an ordering key
    ADD COLUMN IF NOT EXISTS awaited boolean, -- others may depend on it: its end is told
    ADD COLUMN IF NOT EXISTS blockers integer, -- how many of those that it depends on are waited for
    ADD COLUMN IF NOT EXISTS ordering uuid, -- a digest of tenant and ordering key, as in `orders`
    ADD COLUMN IF NOT EXISTS ordering_key text,
    ADD COLUMN IF NOT EXISTS depends_on bytea, -- ids, 16 bytes each
    ADD COLUMN IF NOT EXISTS on_dependency_failure text; -- NULL: cancel
ALTER TABLE history
    ADD COLUMN IF NOT EXISTS awaited boolean,
    ADD COLUMN IF NOT EXISTS ordering uuid,
    ADD COLUMN IF NOT EXISTS ordering_key text,
    ADD COLUMN IF NOT EXISTS depends_on bytea,
    ADD COLUMN IF NOT EXISTS on_dependency_failure text;
ALTER TABLE quarantine
    ADD COLUMN IF NOT EXISTS has_turn boolean,
    ADD COLUMN IF NOT EXISTS awaited boolean,
    ADD COLUMN IF NOT EXISTS blockers integer,
    ADD COLUMN IF NOT EXISTS ordering uuid,
    ADD COLUMN IF NOT EXISTS ordering_key text,
    ADD COLUMN IF NOT EXISTS depends_on bytea,
    ADD COLUMN IF NOT EXISTS on_dependency_failure text;
RESET lock_timeout;
-- The ordering keys that live tasks have. Whoever decides whose turn it is has locked the row.
CREATE TABLE IF NOT EXISTS orders (
    id      uuid PRIMARY KEY,
    head    uuid, -- the task that has the turn
    held_by uuid -- the dead letter that all others wait behind
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS orders_held ON orders (id) WHERE held_by IS NOT NULL;
-- Keys of which it may be another's turn: written in the transaction that is the reason, worked off by any node.
CREATE TABLE IF NOT EXISTS orders_due (
    seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    ordering    uuid NOT NULL,
    dead_letter uuid -- the task with the turn that became one
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- Who waits for whom. An edge goes when its parent's end is resolved.
CREATE TABLE IF NOT EXISTS dependencies (
    parent uuid NOT NULL,
    child  uuid NOT NULL,
    PRIMARY KEY (parent, child)
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- Tasks that came to rest and may be waited for: as `orders_due`.
CREATE TABLE IF NOT EXISTS settled_parents (
    seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    parent uuid     NOT NULL,
    state  smallint NOT NULL
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
-- Dead letters whose children wait for them to be driven again.
CREATE TABLE IF NOT EXISTS held_parents (parent uuid PRIMARY KEY);
-- The tasks of a key that wait, in their order.
DROP INDEX CONCURRENTLY IF EXISTS tasks_ordered;
CREATE INDEX CONCURRENTLY tasks_ordered ON tasks (ordering, execute_at, seq) WHERE ordering IS NOT NULL AND state = 1;
-- What can be claimed has its turn. The old index serves until the new one is there.
DROP INDEX CONCURRENTLY IF EXISTS tasks_with_turn;
CREATE INDEX CONCURRENTLY tasks_with_turn ON tasks (lane, due_at, seq) WHERE state = 1 AND has_turn;
DROP INDEX CONCURRENTLY IF EXISTS tasks_waiting;
ALTER INDEX tasks_with_turn RENAME TO tasks_waiting;
