//! A node's round at the partitions, in the writer's transaction. PostgreSQL has statements that
//! write two tables at once; SQLite cannot, so these differ.

use punctual_core::ids::NodeId;
use punctual_core::partitions::PartitionShare;
use punctual_core::time::Timestamp;

use crate::columns::{node_column, node_from_column};
use crate::portable::partitions::{self, Member, PartitionRound};
use crate::portable::ready;

use super::fault::Fault;
use super::session::Session;
use super::statements::Sql;

/// Makes the round of a node. Returns its share.
pub(crate) fn take_round(session: &mut Session<'_>, round: PartitionRound) -> Result<PartitionShare, Fault> {
    let now = session.now();
    ready(partitions::make(session, round.count))?;
    let rows = ready(partitions::lock(session))?;
    session.statements.get(Sql::PartitionMemberDrop)?.execute([now.as_millis()])?;
    let until = round.expires_at(now).as_millis();
    session.statements.get(Sql::PartitionMemberPut)?.execute((node_column(round.node), until))?;
    let list = session.statements.get(Sql::PartitionMemberList)?;
    let member = |row: &rusqlite::Row<'_>| {
        let expires_at = Timestamp::from_millis(row.get(1)?);
        Ok(Member { node: node_from_column(row.get(0)?), expires_at })
    };
    let others: Vec<Member> = list.query_map([node_column(round.node)], member)?.collect::<Result<_, _>>()?;
    let mut owned = round.changes(&rows, &others, now);
    ready(partitions::write(session, &owned))?;
    owned.retain(|row| row.owner == Some(round.node));
    Ok(PartitionShare { owned, look_again_at: round.next_expiry(&rows, &others, now) })
}

/// Removes a node from the members and frees its partitions.
pub(crate) fn leave(session: &mut Session<'_>, node: NodeId) -> Result<(), Fault> {
    let now = session.now().as_millis();
    session.statements.get(Sql::PartitionMemberLeave)?.execute([node_column(node)])?;
    session.statements.get(Sql::PartitionFree)?.execute((node_column(node), now))?;
    Ok(())
}
