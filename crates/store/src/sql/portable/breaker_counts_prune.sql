DELETE FROM breaker_counts WHERE slot_at < $1
