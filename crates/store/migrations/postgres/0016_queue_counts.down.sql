DROP TABLE queue_counts;
