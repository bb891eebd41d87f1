UPDATE tasks SET has_turn = 0, parked = NULL WHERE seq = ?1
