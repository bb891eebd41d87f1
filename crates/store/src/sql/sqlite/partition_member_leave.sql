DELETE FROM partition_members WHERE node = ?1
