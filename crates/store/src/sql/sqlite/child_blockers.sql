-- Whether a task is blocked, and by how many of its dependencies.
SELECT t.state, t.blockers FROM ids AS i CROSS JOIN tasks AS t ON t.seq = i.seq AND t.id = i.id WHERE i.id = ?1
