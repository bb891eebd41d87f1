-- How many connections the server allows, how many of them are reserved, and how many are in use.
SELECT current_setting('max_connections')::integer, current_setting('superuser_reserved_connections')::integer,
    (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')
