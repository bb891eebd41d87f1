-- How many waiting tasks of a tenant are due in a minute (milliseconds / 60000): the sum over the slots, as in `counts`.
-- Changed in the transaction that moves them, while that minute is later than the one that lasts.
CREATE TABLE forecast (
    tenant text    COLLATE "C" NOT NULL,
    minute bigint  NOT NULL,
    slot   integer NOT NULL,
    tasks  bigint  NOT NULL,
    PRIMARY KEY (tenant, minute, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- By which minutes that are past are found. Of an expression, so that nobody takes it who reads the range of a tenant.
CREATE INDEX forecast_by_minute ON forecast ((minute + 0));

INSERT INTO forecast (tenant, minute, slot, tasks)
SELECT l.tenant, t.due_at / 60000, 0, count(*)
FROM tasks AS t JOIN lanes AS l ON l.id = t.lane
WHERE t.state = 1
GROUP BY 1, 2;
