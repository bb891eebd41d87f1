DROP INDEX lanes_by_queue;
DROP TABLE gates;
DROP TABLE queues;
