-- The lanes of the finished tasks that were submitted first.
SELECT seq, lane FROM history WHERE seq > ?1 ORDER BY seq LIMIT ?2
