//! One round of a node at the partitions: it renews, takes and gives up.
//!
//! The stores read the rows and the members in a transaction, ask this what changes, and write it.
//! [`punctual_core::partitions::rebalance`] makes the balance. This adds what only a table has:
//! columns, and rows from a time when there were more partitions.

use punctual_core::ids::NodeId;
use punctual_core::partitions::{Ownership, Partition, rebalance};
use punctual_core::time::Timestamp;

use crate::columns::{node_from_column, number_column};

/// A node that makes its round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionRound {
    pub node: NodeId,
    /// How many partitions there are.
    pub count: u16,
    pub ttl_millis: u64,
}

impl PartitionRound {
    /// Until when the node owns its partitions, if it is `now`.
    pub(crate) fn expires_at(&self, now: Timestamp) -> Timestamp {
        now.plus_millis(number_column(self.ttl_millis))
    }

    /// The rows that change at `now`, by number. `rows` are those of the table, by number and
    /// without a gap among the first `count`. `members` are the nodes that take part, this one
    /// among them. The node gives up its partitions beyond the count.
    pub(crate) fn changes(&self, rows: &[Ownership], members: &[NodeId], now: Timestamp) -> Vec<Ownership> {
        let (counted, beyond) = rows.split_at(rows.partition_point(|row| row.partition.number() < self.count));
        let mut changes = rebalance(self.node, counted, members, now, self.expires_at(now));
        let freed = |row: &Ownership| Ownership { owner: None, expires_at: now, ..*row };
        changes.extend(beyond.iter().filter(|row| row.owner == Some(self.node)).map(freed));
        changes
    }
}

/// The ownership in the columns of a row.
pub(crate) fn ownership(number: i32, owner: Option<i64>, term: i64, expires_at: i64) -> Ownership {
    Ownership {
        partition: Partition::new(u16::try_from(number).unwrap_or(u16::MAX)),
        owner: owner.map(node_from_column),
        term: term.cast_unsigned(),
        expires_at: Timestamp::from_millis(expires_at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_the_count_is_given_up_by_its_owner_alone() {
        let at = Timestamp::from_millis;
        let rows: Vec<Ownership> =
            (0..6).map(|number| ownership(number, Some(i64::from(1 + number % 2)), 7, 100)).collect();
        let round = PartitionRound { node: NodeId::new(1), count: 3, ttl_millis: 50 };
        let changes = round.changes(&rows, &[NodeId::new(1), NodeId::new(2)], at(60));
        let told: Vec<_> = changes.iter().map(|row| (row.partition.number(), row.owner, row.expires_at)).collect();
        let own = Some(NodeId::new(1));
        assert_eq!(told, [(0, own, at(110)), (2, own, at(110)), (4, None, at(60))]);
        assert!(changes.iter().all(|row| row.term == 7));
    }
}
