-- One seek in the index: the first waiting task of the next lane that has one.
SELECT lane, due_at FROM tasks INDEXED BY tasks_waiting
WHERE state = 1 /* PENDING */ AND has_turn = 1 AND lane > ?1
ORDER BY lane, due_at
LIMIT 1
