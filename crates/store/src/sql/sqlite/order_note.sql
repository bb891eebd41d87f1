-- A note that the turn of a key may pass.
INSERT INTO orders_due (ordering, dead_letter) VALUES (?1, ?2)
