UPDATE tasks SET has_turn = 0 WHERE seq = ?1
