-- How many live tasks of a queue are in a state: the sum over its lanes, changed with `counts`. A limit reads these, so it
-- costs the same however many lanes its queue has. The rows without a tenant and a queue are the sums over all queues.
CREATE TABLE queue_counts (
    tenant TEXT    NOT NULL,
    queue  TEXT    NOT NULL,
    state  INTEGER NOT NULL,
    tasks  INTEGER NOT NULL,
    PRIMARY KEY (tenant, queue, state)
) STRICT, WITHOUT ROWID;

INSERT INTO queue_counts (tenant, queue, state, tasks)
SELECT l.tenant, l.queue, c.state, sum(c.tasks)
FROM counts AS c JOIN lanes AS l ON l.id = c.lane
GROUP BY 1, 2, 3;

INSERT INTO queue_counts (tenant, queue, state, tasks)
SELECT '', '', state, sum(tasks) FROM queue_counts GROUP BY state;
