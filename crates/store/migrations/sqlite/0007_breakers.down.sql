DROP TABLE breaker_counts;
DROP TABLE breakers;
