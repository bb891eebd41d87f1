-- The body of every webhook is its task's payload after this.
ALTER TABLE quarantine DROP COLUMN callback_body;
ALTER TABLE history DROP COLUMN callback_body;
ALTER TABLE tasks DROP COLUMN callback_body;
