DROP INDEX history_by_lane;
