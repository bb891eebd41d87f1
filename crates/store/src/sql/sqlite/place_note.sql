INSERT INTO places_due (concurrency, places) VALUES (?1, ?2)
