-- no-transaction
-- A backfill looks for the records that stand for its instants. They are few. Made while others write: what an attempt
-- that was broken off has left is made anew.
DROP INDEX CONCURRENTLY IF EXISTS occurrences_covering;
CREATE INDEX CONCURRENTLY occurrences_covering ON occurrences (schedule_id, instant) WHERE covers_until IS NOT NULL;
