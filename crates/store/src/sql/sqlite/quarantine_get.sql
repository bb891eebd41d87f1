SELECT q.lane, q.reason FROM ids AS i CROSS JOIN quarantine AS q ON q.seq = i.seq WHERE i.id = ?1
