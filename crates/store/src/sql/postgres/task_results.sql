-- The states and results of the tasks $1, in this order, up to the first result for which there is no
-- room in $2 bytes. A live task goes before the past of its id in the history. The size of a result is
-- known without reading it.
SELECT r.state, r.result
FROM (
    SELECT w.place, f.state, f.result, sum(coalesce(octet_length(f.result), 0)) OVER (ORDER BY w.place) AS bytes
    FROM unnest($1::uuid[]) WITH ORDINALITY AS w (id, place)
    LEFT JOIN LATERAL (
        SELECT t.state, NULL::text AS result, 0 AS age FROM tasks AS t WHERE t.id = w.id
        UNION ALL
        SELECT h.state, h.result, 1 AS age FROM history AS h WHERE h.id = w.id
        ORDER BY age
        LIMIT 1
    ) AS f ON true
) AS r
WHERE r.bytes <= $2
ORDER BY r.place
