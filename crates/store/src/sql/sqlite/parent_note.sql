-- A note that a task has come to rest which others may wait for.
INSERT INTO settled_parents (parent, state) VALUES (?1, ?2)
