-- A note that a task is live again, and its failed children with it.
INSERT INTO revived_parents (parent) VALUES (?1)
