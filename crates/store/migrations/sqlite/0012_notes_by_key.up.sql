-- A claim asks whether the turn of a key may pass.
CREATE INDEX orders_due_by_key ON orders_due (ordering);
