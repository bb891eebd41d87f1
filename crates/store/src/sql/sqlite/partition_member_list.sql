SELECT node, expires_at FROM partition_members WHERE node <> ?1
