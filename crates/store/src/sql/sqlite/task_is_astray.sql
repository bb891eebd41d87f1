-- Whether the id of a live task leads to another row, or the history has the task as well: no
-- change could reach it.
SELECT (SELECT seq FROM ids WHERE id = t.id) IS NOT t.seq OR EXISTS (SELECT 1 FROM history WHERE seq = t.seq)
FROM tasks AS t
WHERE t.seq = ?1
