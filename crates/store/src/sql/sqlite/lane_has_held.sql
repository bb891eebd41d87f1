SELECT count(*) > 0 FROM counts WHERE lane = ?1 AND state >= 2 /* QUEUED */ AND tasks <> 0
