SELECT history_ahead($1, $2, $3)
