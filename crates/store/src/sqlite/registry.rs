//! What a new process clears of earlier ones. The port's calls are in `portable/registry.rs`.

use crate::columns::node_column;

use super::fault::Fault;
use super::overdue::holders;
use super::session::Session;
use super::statements::Sql;

/// Declares every other node that holds a task dead, and frees all leases and partitions. The
/// process that opens the store has the lock of its directory: no earlier process is alive, so
/// nothing has to expire first.
pub(crate) fn forget_the_past(session: &mut Session<'_>) -> Result<(), Fault> {
    let own = node_column(session.node);
    for node in holders(session)?.into_iter().flatten().filter(|node| *node != own) {
        session.statements.get(Sql::NodeDied)?.execute([node])?;
    }
    session.statements.run(Sql::LeaseFreeAll)?;
    session.statements.run(Sql::PartitionFreeAll)?;
    session.statements.run(Sql::PartitionMemberLeaveAll)
}
