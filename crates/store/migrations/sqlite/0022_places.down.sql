-- Concurrency keys have no effect after this.
UPDATE tasks SET has_turn = 1 WHERE parked = 1;
DROP TABLE places_due;
DROP INDEX tasks_parked;
DROP INDEX tasks_with_place;
ALTER TABLE quarantine DROP COLUMN parked;
ALTER TABLE quarantine DROP COLUMN concurrency;
ALTER TABLE bodies DROP COLUMN concurrency_key;
ALTER TABLE tasks DROP COLUMN parked;
ALTER TABLE tasks DROP COLUMN concurrency;
