DROP INDEX occurrences_covering;
