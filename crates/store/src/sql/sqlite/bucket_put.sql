INSERT OR REPLACE INTO buckets (tenant, queue, tokens, refilled_at) VALUES (?1, ?2, ?3, ?4)
