DROP INDEX orders_due_by_key;
