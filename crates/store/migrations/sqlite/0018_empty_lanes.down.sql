DROP TRIGGER lanes_removed;
DROP TRIGGER lanes_made;
DROP TABLE lane_counts;
ALTER TABLE lanes DROP COLUMN empty_since;
