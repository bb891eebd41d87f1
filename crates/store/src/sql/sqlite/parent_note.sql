-- A note that a task which others may depend on has finished.
INSERT INTO settled_parents (parent, state) VALUES (?1, ?2)
