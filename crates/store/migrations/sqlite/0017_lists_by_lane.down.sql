DROP INDEX history_by_lane;
DROP INDEX tasks_unclaimable;
