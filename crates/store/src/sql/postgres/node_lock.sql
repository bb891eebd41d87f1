-- The session holds the lock of the node until its connection ends. The backend, if no other session holds it.
SELECT pg_backend_pid() WHERE pg_try_advisory_lock($1)
