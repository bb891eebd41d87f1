-- Whether this is the last term of the lease, expired or not. It stays so until this transaction
-- ends: taking the lease locks its row for update. Renewals do not wait for this lock.
SELECT term FROM leases WHERE name = $1 AND holder = $2 AND term = $3 FOR KEY SHARE
