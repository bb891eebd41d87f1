-- Tasks with an ordering key run in no order after this; a task that is BLOCKED stays so until somebody cancels it.
DROP TABLE held_parents;
DROP TABLE settled_parents;
DROP TABLE dependencies;
DROP TABLE orders_due;
DROP TABLE orders;
DROP INDEX tasks_ordered;
DROP INDEX tasks_waiting;
CREATE INDEX tasks_waiting ON tasks (lane, due_at) WHERE state = 1;

ALTER TABLE quarantine DROP COLUMN ordering;
ALTER TABLE quarantine DROP COLUMN blockers;
ALTER TABLE quarantine DROP COLUMN awaited;
ALTER TABLE quarantine DROP COLUMN has_turn;

ALTER TABLE bodies DROP COLUMN on_dependency_failure;
ALTER TABLE bodies DROP COLUMN depends_on;
ALTER TABLE bodies DROP COLUMN ordering_key;

ALTER TABLE tasks DROP COLUMN ordering;
ALTER TABLE tasks DROP COLUMN blockers;
ALTER TABLE tasks DROP COLUMN awaited;
ALTER TABLE tasks DROP COLUMN has_turn;
