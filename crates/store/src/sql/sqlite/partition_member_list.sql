SELECT node FROM partition_members
