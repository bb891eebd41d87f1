DELETE FROM occurrences WHERE schedule_id = ?1 AND outcome = 0
