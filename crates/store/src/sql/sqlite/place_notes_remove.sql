DELETE FROM places_due WHERE seq <= ?1
