-- As `tasks_unclaimable`, for finished tasks. PostgreSQL cannot make an index of a partitioned table concurrently: nothing
-- finishes while it is made. It is of an expression, so that only lists use it: the planner likes to read the whole of an
-- index on `lane` where a statement joins the lanes and the table seems empty.
CREATE INDEX history_by_lane ON history ((lane + 0));
