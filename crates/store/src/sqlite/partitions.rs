//! A node's round at the partitions, in the writer's transaction. PostgreSQL has statements that
//! write two tables at once; SQLite cannot, so these differ.

use punctual_core::ids::NodeId;
use punctual_core::partitions::Ownership;

use crate::columns::{node_column, node_from_column};
use crate::portable::partitions::{self, PartitionRound};
use crate::portable::ready;

use super::fault::Fault;
use super::session::Session;
use super::statements::Sql;

/// Makes the round of a node. Returns the partitions that it owns afterwards.
pub(crate) fn take_round(session: &mut Session<'_>, round: PartitionRound) -> Result<Vec<Ownership>, Fault> {
    let now = session.now();
    ready(partitions::make(session, round.count))?;
    let rows = ready(partitions::lock(session))?;
    session.statements.get(Sql::PartitionMemberDrop)?.execute([now.as_millis()])?;
    let until = round.expires_at(now).as_millis();
    session.statements.get(Sql::PartitionMemberPut)?.execute((node_column(round.node), until))?;
    let list = session.statements.get(Sql::PartitionMemberList)?;
    let members: Vec<NodeId> = list.query_map([], |row| row.get(0).map(node_from_column))?.collect::<Result<_, _>>()?;
    let mut changes = round.changes(&rows, &members, now);
    ready(partitions::write(session, &changes))?;
    changes.retain(|row| row.owner == Some(round.node));
    Ok(changes)
}

/// Removes a node from the members and frees its partitions.
pub(crate) fn leave(session: &mut Session<'_>, node: NodeId) -> Result<(), Fault> {
    let now = session.now().as_millis();
    session.statements.get(Sql::PartitionMemberLeave)?.execute([node_column(node)])?;
    session.statements.get(Sql::PartitionFree)?.execute((node_column(node), now))?;
    Ok(())
}
