UPDATE gates SET tokens = w.tokens, refilled_at = w.refilled_at
FROM unnest($1::text[], $2::text[], $3::double precision[], $4::bigint[]) AS w (tenant, queue, tokens, refilled_at)
WHERE gates.tenant = w.tenant AND gates.queue = w.queue
