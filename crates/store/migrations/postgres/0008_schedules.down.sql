DROP TABLE occurrences;
DROP TABLE schedules;
