-- A backfill looks for the records that stand for its instants. They are few.
CREATE INDEX occurrences_covering ON occurrences (schedule_id, instant) WHERE covers_until IS NOT NULL;
