-- The first of these dependencies that a task still waits for, in the order given: json_each is the
-- outermost loop.
SELECT p.id
FROM json_each(?2) AS w
CROSS JOIN ids AS p ON p.id = unhex(w.value)
CROSS JOIN dependencies AS d ON d.parent = p.seq AND d.child = (SELECT seq FROM ids WHERE id = ?1)
LIMIT ?3
