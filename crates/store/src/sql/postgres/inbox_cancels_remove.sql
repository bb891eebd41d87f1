DELETE FROM inbox_cancels WHERE seq = ANY ($1)
