SELECT lanes_remove($1, $2)
