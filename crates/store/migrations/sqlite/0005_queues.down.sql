DROP TABLE buckets;
DROP TABLE queues;
