-- Dead letters that hold their children, behind one.
SELECT parent FROM held_parents WHERE parent > $1 ORDER BY parent LIMIT $2
