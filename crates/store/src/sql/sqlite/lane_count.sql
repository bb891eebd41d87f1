SELECT lanes FROM lane_counts WHERE tenant = ?1
