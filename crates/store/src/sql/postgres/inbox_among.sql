-- Those of the ids that wait in the inbox.
SELECT id FROM inbox WHERE id = ANY ($1)
