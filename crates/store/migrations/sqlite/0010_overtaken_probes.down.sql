ALTER TABLE breakers DROP COLUMN overtaken;
