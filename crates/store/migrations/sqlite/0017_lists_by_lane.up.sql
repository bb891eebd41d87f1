-- A list of a tenant with few tasks reads them by their lanes. Tasks that can be claimed are in `tasks_waiting`, so an
-- ordinary submission writes to no further index.
CREATE INDEX tasks_unclaimable ON tasks (lane) WHERE state = 0 OR (state = 1 AND has_turn = 0);
CREATE INDEX history_by_lane ON history (lane);
