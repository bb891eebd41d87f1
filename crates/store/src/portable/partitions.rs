//! Which node owns which partition: one round of a node, in which it renews, takes and gives up.
//!
//! A store reads the rows and the members in a transaction, asks [`PartitionRound`] what changes,
//! and writes it. [`punctual_core::partitions::rebalance`] decides the balance. This module adds
//! what only a table has: columns, and rows from a time when there were more partitions.

use punctual_core::ids::NodeId;
use punctual_core::partitions::{Ownership, Partition, rebalance};
use punctual_core::time::Timestamp;
use serde_json::json;

use super::lists::rows_column;
use super::{Connection, Corrupt, PortableSql, Row};
use crate::columns::{node_column, node_from_column, number_column};

/// A round of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionRound {
    pub node: NodeId,
    /// How many partitions there are.
    pub count: u16,
    pub ttl_millis: u64,
}

/// A node that takes part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub node: NodeId,
    pub expires_at: Timestamp,
}

impl PartitionRound {
    /// When the ownership of the node expires, for a round at `now`.
    pub(crate) fn expires_at(&self, now: Timestamp) -> Timestamp {
        now.plus_millis(number_column(self.ttl_millis))
    }

    /// When the next right of another node ends: the membership of one of `others`, or the
    /// ownership of a row.
    pub(crate) fn next_expiry(&self, rows: &[Ownership], others: &[Member], now: Timestamp) -> Option<Timestamp> {
        let is_other = |row: &&Ownership| row.owner_at(now).is_some_and(|owner| owner != self.node);
        let owned = rows.iter().filter(is_other).map(|row| row.expires_at);
        owned.chain(others.iter().map(|member| member.expires_at)).min()
    }

    /// The rows that change at `now`, by number. `rows` are those of the table, by number and
    /// without a gap among the first `count`. `others` are the other nodes that take part. The node
    /// gives up its partitions beyond the count.
    pub(crate) fn changes(&self, rows: &[Ownership], others: &[Member], now: Timestamp) -> Vec<Ownership> {
        let members: Vec<NodeId> = others.iter().map(|member| member.node).chain([self.node]).collect();
        let (counted, beyond) = rows.split_at(rows.partition_point(|row| row.partition.number() < self.count));
        let mut changes = rebalance(self.node, counted, &members, now, self.expires_at(now));
        let freed = |row: &Ownership| Ownership { owner: None, expires_at: now, ..*row };
        changes.extend(beyond.iter().filter(|row| row.owner == Some(self.node)).map(freed));
        changes
    }
}

/// Every partition that was ever owned, by number.
pub(crate) async fn ownership<C: Connection>(connection: &mut C) -> Result<Vec<Ownership>, C::Fault> {
    rows(connection, PortableSql::PartitionList).await
}

/// Every row, by number. On PostgreSQL it locks them, so one node at a time makes a round.
pub(crate) async fn lock<C: Connection>(connection: &mut C) -> Result<Vec<Ownership>, C::Fault> {
    rows(connection, PortableSql::PartitionLock).await
}

/// Makes the missing rows among the first `count`.
pub(crate) async fn make<C: Connection>(connection: &mut C, count: u16) -> Result<(), C::Fault> {
    connection.execute(PortableSql::PartitionMake, &[&i32::from(count)]).await?;
    Ok(())
}

/// Writes rows that exist.
pub(crate) async fn write<C: Connection>(connection: &mut C, changes: &[Ownership]) -> Result<(), C::Fault> {
    let row = |row: &Ownership| {
        json!({
            "number": row.partition.number(),
            "owner": row.owner.map(node_column),
            "term": number_column(row.term),
            "expires_at": row.expires_at.as_millis(),
        })
    };
    connection.execute(PortableSql::PartitionWrite, &[&rows_column(changes.iter().map(row))]).await?;
    Ok(())
}

async fn rows<C: Connection>(connection: &mut C, sql: PortableSql) -> Result<Vec<Ownership>, C::Fault> {
    let ownership = |row: &C::Row| {
        Ok(Ownership {
            partition: Partition::new(u16::try_from(row.get::<i32>(0)?).unwrap_or(u16::MAX)),
            owner: row.get::<Option<i64>>(1)?.map(node_from_column),
            term: row.get::<i64>(2)?.cast_unsigned(),
            expires_at: Timestamp::from_millis(row.get(3)?),
        })
    };
    Ok(connection.query(sql, &[]).await?.iter().map(ownership).collect::<Result<_, Corrupt>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_gives_up_its_partitions_beyond_the_count() {
        let at = Timestamp::from_millis;
        let row = |number: u16| Ownership {
            partition: Partition::new(number),
            owner: Some(NodeId::new(u64::from(1 + number % 2))),
            term: 7,
            expires_at: at(100),
        };
        let rows: Vec<Ownership> = (0..6).map(row).collect();
        let round = PartitionRound { node: NodeId::new(1), count: 3, ttl_millis: 50 };
        let changes = round.changes(&rows, &[Member { node: NodeId::new(2), expires_at: at(100) }], at(60));
        let changed: Vec<_> = changes.iter().map(|row| (row.partition.number(), row.owner, row.expires_at)).collect();
        let own = Some(NodeId::new(1));
        assert_eq!(changed, [(0, own, at(110)), (2, own, at(110)), (4, None, at(60))]);
        assert!(changes.iter().all(|row| row.term == 7));
    }
}
