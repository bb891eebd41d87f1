-- The body of every webhook is its task's payload after this.
ALTER TABLE bodies DROP COLUMN callback_body;
