DROP FUNCTION lanes_remove(bigint[], bigint);
DROP TRIGGER lanes_removed ON lanes;
DROP TRIGGER lanes_made ON lanes;
DROP FUNCTION lanes_count();
DROP TABLE lane_counts;
ALTER TABLE lanes DROP COLUMN empty_since;
