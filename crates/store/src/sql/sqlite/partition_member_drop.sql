DELETE FROM partition_members WHERE expires_at <= ?1
