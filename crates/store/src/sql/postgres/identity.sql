-- The identity of this database; a standby has that of its primary.
SELECT (SELECT system_identifier FROM pg_control_system()), (SELECT oid FROM pg_database WHERE datname = current_database())
