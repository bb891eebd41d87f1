-- Removes a lane that was not used since it was found empty. The last lane stays, so that no number
-- is given twice: a reader may have cached it.
DELETE FROM lanes
WHERE id = ?1 AND empty_since = ?2 AND NOT EXISTS (SELECT 1 FROM counts WHERE lane = ?1)
    AND id < (SELECT max(id) FROM lanes)
