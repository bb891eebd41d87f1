-- Notes that places of keys may be free.
INSERT INTO places_due (concurrency, places)
SELECT concurrency, places FROM unnest($1::uuid[], $2::bigint[]) AS w (concurrency, places)
RETURNING seq
