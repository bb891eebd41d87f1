SELECT depends_on FROM bodies WHERE seq = ?1
