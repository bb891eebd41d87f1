DROP INDEX queues_by_change;
ALTER TABLE queues DROP COLUMN change_number;
