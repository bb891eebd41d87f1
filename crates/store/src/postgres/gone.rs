//! Declares a node gone whose lock the server has dropped (`cluster/node_lock.rs`).
//!
//! One transaction ends all rights of the node. It takes the node's lock itself, so the node does
//! not have it, and does not get it back before the rights have ended. A node that lives after all
//! finds its partitions and its lease in other terms, like a node that was frozen.

use punctual_core::ids::NodeId;
use punctual_core::time::Timestamp;

use super::connection::Session;
use super::fault::Fault;
use super::partitions::BEGIN;
use super::statements::Sql;
use crate::columns::node_column;

/// Whether the node is declared gone now. The other nodes get the notification if it is.
pub(crate) async fn declare(
    session: &Session,
    now: Timestamp,
    node: NodeId,
    notification: &str,
) -> Result<bool, Fault> {
    let (node, now) = (node_column(node), now.as_millis());
    session.run(BEGIN).await?;
    if session.execute(Sql::NodeGone, &[&node, &now]).await? == 0 {
        session.run("ROLLBACK").await?;
        return Ok(false);
    }
    // In the order of every round.
    session.query(Sql::PartitionLock, &[]).await?;
    session.execute(Sql::PartitionLeave, &[&node, &now]).await?;
    session.execute(Sql::LeaseEnd, &[&node]).await?;
    session.query(Sql::Notify, &[&notification]).await?;
    session.run("COMMIT").await?;
    Ok(true)
}
