-- Whether this is the last term of the lease, run out or not. It stays so until this transaction has ended: whoever takes
-- the lease locks its row for update. Renewals are not in the way.
SELECT term FROM leases WHERE name = $1 AND holder = $2 AND term = $3 FOR KEY SHARE
