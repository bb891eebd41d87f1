-- Whether this is the last term of the lease, expired or not.
SELECT term FROM leases WHERE name = $1 AND holder = $2 AND term = $3
