-- Whether the id of a live task leads elsewhere, or the task is in the history as well: nobody could change it.
SELECT (SELECT seq FROM ids WHERE id = t.id) IS NOT t.seq OR EXISTS (SELECT 1 FROM history WHERE seq = t.seq)
FROM tasks AS t
WHERE t.seq = ?1
