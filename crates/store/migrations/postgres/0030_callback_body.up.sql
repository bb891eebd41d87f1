-- What the body of a webhook's request is, for a task with a callback. NULL: the payload.
ALTER TABLE tasks ADD COLUMN callback_body text;
ALTER TABLE history ADD COLUMN callback_body text;
ALTER TABLE quarantine ADD COLUMN callback_body text;
