DELETE FROM forecast WHERE (tenant, minute) IN (
    SELECT tenant, minute FROM forecast INDEXED BY forecast_by_minute WHERE minute < ?1 ORDER BY minute LIMIT ?2
)
