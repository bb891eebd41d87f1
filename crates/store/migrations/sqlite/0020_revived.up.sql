-- Which task finished because of which parent: they are revived if that parent is re-driven with its dependents.
CREATE TABLE failed_children (
    parent    INTEGER NOT NULL,
    child     INTEGER NOT NULL,
    failed_at INTEGER NOT NULL,
    PRIMARY KEY (parent, child)
) STRICT, WITHOUT ROWID;

CREATE INDEX failed_children_by_time ON failed_children (failed_at);

-- Tasks that are live again and whose failed children are to be revived: as `settled_parents`.
CREATE TABLE revived_parents (
    seq    INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL
) STRICT;
