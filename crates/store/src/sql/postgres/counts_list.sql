SELECT lane, state, sum(tasks)::bigint FROM counts GROUP BY lane, state HAVING sum(tasks) > 0
