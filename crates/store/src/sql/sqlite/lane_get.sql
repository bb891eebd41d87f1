SELECT tenant, queue, kind, priority, target FROM lanes WHERE id = ?1
