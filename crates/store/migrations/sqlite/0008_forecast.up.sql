-- How many waiting tasks of a tenant are due in a minute (milliseconds / 60000): changed in the transaction that moves
-- them, while that minute is later than the one that lasts.
CREATE TABLE forecast (
    tenant TEXT    NOT NULL,
    minute INTEGER NOT NULL,
    tasks  INTEGER NOT NULL,
    PRIMARY KEY (tenant, minute)
) STRICT, WITHOUT ROWID;

-- By which minutes that are past are found.
CREATE INDEX forecast_by_minute ON forecast (minute);

INSERT INTO forecast (tenant, minute, tasks)
SELECT l.tenant, t.due_at / 60000, count(*)
FROM tasks AS t JOIN lanes AS l ON l.id = t.lane
WHERE t.state = 1
GROUP BY 1, 2;
