SELECT 1 FROM forecast INDEXED BY forecast_by_minute WHERE minute < ?1 LIMIT 1
