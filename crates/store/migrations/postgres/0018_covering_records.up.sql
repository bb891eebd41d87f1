-- no-transaction
-- A backfill looks for the records that stand for its instants. They are few. Built while others write. A build
-- that failed leaves an invalid index, which is dropped first.
DROP INDEX CONCURRENTLY IF EXISTS occurrences_covering;
CREATE INDEX CONCURRENTLY occurrences_covering ON occurrences (schedule_id, instant) WHERE covers_until IS NOT NULL;
