-- What the body of a webhook's request is, for a task with a callback.
ALTER TABLE bodies ADD COLUMN callback_body TEXT; -- NULL: the payload
