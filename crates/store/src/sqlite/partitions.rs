//! Which node owns which partition. A round is part of the writer's transaction.

use punctual_core::ids::NodeId;
use punctual_core::partitions::Ownership;

use crate::columns::{node_column, node_from_column, number_column};
use crate::partition_round::{PartitionRound, ownership as ownership_of_columns};

use super::fault::Fault;
use super::session::Session;
use super::statements::Sql;

/// A node makes its round. Returns what it owns afterwards.
pub(crate) fn take_round(session: &mut Session<'_>, round: PartitionRound) -> Result<Vec<Ownership>, Fault> {
    let now = session.now();
    let until = round.expires_at(now).as_millis();
    session.statements.get(Sql::PartitionMemberDrop)?.execute([now.as_millis()])?;
    session.statements.get(Sql::PartitionMemberPut)?.execute((node_column(round.node), until))?;
    let rows = complete(session, round.count)?;
    let changes = round.changes(&rows, &members(session)?, now);
    let put = session.statements.get(Sql::PartitionPut)?;
    for row in &changes {
        let owner = row.owner.map(node_column);
        put.execute((row.partition.number(), owner, number_column(row.term), row.expires_at.as_millis()))?;
    }
    Ok(changes.into_iter().filter(|row| row.owner == Some(round.node)).collect())
}

/// A node leaves.
pub(crate) fn leave(session: &mut Session<'_>, node: NodeId) -> Result<(), Fault> {
    let now = session.now().as_millis();
    session.statements.get(Sql::PartitionMemberLeave)?.execute([node_column(node)])?;
    session.statements.get(Sql::PartitionFree)?.execute((node_column(node), now))?;
    Ok(())
}

/// Every partition that was ever owned, by number.
pub(crate) fn ownership(session: &mut Session<'_>) -> Result<Vec<Ownership>, Fault> {
    let mut rows = rows(session)?;
    rows.retain(|row| row.term > 0);
    Ok(rows)
}

/// Every row, by number. Rows missing among the first `count` are made.
fn complete(session: &mut Session<'_>, count: u16) -> Result<Vec<Ownership>, Fault> {
    let there = rows(session)?;
    let make = session.statements.get(Sql::PartitionMake)?;
    let mut is_made = false;
    for number in 0..count {
        if there.binary_search_by_key(&number, |row| row.partition.number()).is_err() {
            make.execute([number])?;
            is_made = true;
        }
    }
    if is_made { rows(session) } else { Ok(there) }
}

fn rows(session: &mut Session<'_>) -> Result<Vec<Ownership>, Fault> {
    let query = session.statements.get(Sql::PartitionList)?;
    let rows =
        query.query_map([], |row| Ok(ownership_of_columns(row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn members(session: &mut Session<'_>) -> Result<Vec<NodeId>, Fault> {
    let query = session.statements.get(Sql::PartitionMemberList)?;
    let nodes = query.query_map([], |row| row.get(0).map(node_from_column))?;
    Ok(nodes.collect::<Result<_, _>>()?)
}
