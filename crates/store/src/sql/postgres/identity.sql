-- Which database this is, among all there are; a standby is the same as its primary.
SELECT (SELECT system_identifier FROM pg_control_system()), (SELECT oid FROM pg_database WHERE datname = current_database())
