SELECT lane, reason FROM quarantine WHERE id = $1
