-- How many live tasks of a queue are in a state: the sum over its lanes and over the slots, changed with `counts`. A limit
-- reads these, so it costs the same however many lanes its queue has. The rows without a tenant and a queue are the sums
-- over all queues.
CREATE TABLE queue_counts (
    tenant text     COLLATE "C" NOT NULL,
    queue  text     COLLATE "C" NOT NULL,
    state  smallint NOT NULL,
    slot   integer  NOT NULL,
    tasks  bigint   NOT NULL,
    PRIMARY KEY (tenant, queue, state, slot)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

INSERT INTO queue_counts (tenant, queue, state, slot, tasks)
SELECT coalesce(l.tenant, ''), coalesce(l.queue, ''), c.state, 0, sum(c.tasks)
FROM counts AS c JOIN lanes AS l ON l.id = c.lane
GROUP BY GROUPING SETS ((l.tenant, l.queue, c.state), (c.state));
