-- no-transaction
-- A claim asks whether the turn of a key may pass. Made while others write: what an attempt that was broken off has left
-- is made anew.
DROP INDEX CONCURRENTLY IF EXISTS orders_due_by_key;
CREATE INDEX CONCURRENTLY orders_due_by_key ON orders_due (ordering);
