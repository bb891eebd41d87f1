-- A note that it may be another's turn.
INSERT INTO orders_due (ordering, dead_letter) VALUES (?1, ?2)
