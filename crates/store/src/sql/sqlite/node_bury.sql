-- A node that still holds a task stays known, so that its holds are still found by its name.
DELETE FROM nodes
WHERE id = ?1
    AND NOT EXISTS (SELECT 1 FROM tasks INDEXED BY tasks_held WHERE state >= 2 /* QUEUED */ AND node = ?1)
