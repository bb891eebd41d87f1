SELECT seq FROM ids WHERE id = ?1
