SELECT count(*) FROM schema_migrations WHERE version <= $1
