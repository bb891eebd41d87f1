-- A node scans the inbox all the time for $1 milliseconds.
UPDATE inbox_watch SET watched_until = (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1
