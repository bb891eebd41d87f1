SELECT seq, ordering, dead_letter FROM orders_due ORDER BY seq LIMIT ?1
