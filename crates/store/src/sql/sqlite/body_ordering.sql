SELECT ordering_key FROM bodies WHERE seq = ?1
