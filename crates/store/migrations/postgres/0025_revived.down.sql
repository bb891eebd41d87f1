DROP TABLE revived_parents;
DROP TABLE failed_children;
