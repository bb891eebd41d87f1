SELECT count(*) FROM (SELECT 1 FROM quarantine LIMIT 10000) AS found
