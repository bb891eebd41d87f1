UPDATE partitions AS p SET owner = w.owner, term = w.term, expires_at = w.expires_at
FROM unnest($1::integer[], $2::bigint[], $3::bigint[], $4::bigint[]) AS w (number, owner, term, expires_at)
WHERE p.number = w.number
