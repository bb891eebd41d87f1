DELETE FROM orders_due WHERE seq <= ?1
