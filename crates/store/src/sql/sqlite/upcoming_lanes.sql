SELECT id, kind, queue FROM lanes WHERE tenant = ?1
