SELECT pg_notify('punctual_wake', $1)
