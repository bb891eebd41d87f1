-- For so many milliseconds a node looks into the inbox all the time.
UPDATE inbox_watch SET watched_until = (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $1
