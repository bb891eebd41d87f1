-- Skips partitions in which a claim of the last owner is still writing (`partition_hold.sql`): that
-- owner may be frozen.
SELECT p.number FROM unnest($1::integer[]) AS w (number) JOIN partitions AS p ON p.number = w.number
FOR UPDATE OF p SKIP LOCKED
