SELECT history_ahead($1, $2)
