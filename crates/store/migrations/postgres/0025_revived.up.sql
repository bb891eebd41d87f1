-- Which task finished because of which parent: they are revived if that parent is re-driven with its dependents.
CREATE TABLE failed_children (
    parent    uuid   NOT NULL,
    child     uuid   NOT NULL,
    failed_at bigint NOT NULL,
    PRIMARY KEY (parent, child)
);

CREATE INDEX failed_children_by_time ON failed_children (failed_at);

-- Tasks that are live again and whose failed children are to be revived: as `settled_parents`.
CREATE TABLE revived_parents (
    seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    parent uuid NOT NULL
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
