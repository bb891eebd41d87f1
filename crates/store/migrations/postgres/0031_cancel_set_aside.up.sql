-- As before, and also for submissions that were set aside: they must not be put back once they are cancelled.
CREATE OR REPLACE FUNCTION cancel(id anycompatible, tenant text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, punctual, pg_temp
SET standard_conforming_strings = on
AS $$
DECLARE
    brief      CONSTANT bigint := 1000; -- as in `enqueue`
    now_millis CONSTANT bigint := floor(extract(epoch FROM clock_timestamp()) * 1000);
    whose      CONSTANT text   := coalesce(cancel.tenant, 'default');
    task       CONSTANT uuid   := inbox_task_id(cancel.id::text);
BEGIN
    IF cancel.id IS NULL THEN
        RETURN false;
    ELSIF task IS NULL THEN
        PERFORM inbox_refuse(quote_literal(left(cancel.id::text, 100)) || ' is not the id of a task',
            'An id is a UUID in lower case, with task_ before it or without.');
    END IF;
    IF NOT EXISTS (
        SELECT FROM inbox AS i WHERE i.id = task AND i.tenant = whose
        UNION ALL
        SELECT FROM tasks AS t JOIN lanes AS l ON l.id = t.lane WHERE t.id = task AND l.tenant = whose
        UNION ALL
        SELECT FROM inbox_refused AS r WHERE r.id = task AND r.tenant = whose
    ) THEN
        RETURN EXISTS (
            SELECT FROM history AS h JOIN lanes AS l ON l.id = h.lane
            WHERE h.id = task AND l.tenant = whose AND h.state = 5 /* CANCELLED */
        );
    END IF;
    INSERT INTO inbox_cancels (task_id, created_at) VALUES (task, now_millis);
    IF (SELECT w.watched_until < now_millis + brief FROM inbox_watch AS w) THEN
        PERFORM pg_notify('punctual_inbox', 'cancels');
    END IF;
    RETURN true;
END
$$;
