//! A node's round at the partitions. A round is one transaction, and one node at a time makes a
//! round: that is why it is not one call for both databases (see `portable/partitions.rs`).
//!
//! The locks on the rows make rounds wait for each other, but claims do not wait for renewals. Only
//! the partitions that a node takes are locked against claims too (`terms`). So no partition
//! changes hands while a claim in the term of its last owner is under way, and a later claim sees
//! the new owner. A node that gives up partitions notifies the others, so that they need not wait
//! for their next round.

use punctual_core::clock::Clock;
use punctual_core::ids::NodeId;
use punctual_core::partitions::{Ownership, PartitionShare};
use punctual_core::time::Timestamp;
use tokio_postgres::Row;

use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use crate::columns::{node_column, node_from_column};
use crate::portable::partitions::{self, Member, PartitionRound};

/// How a round begins. The timeouts make the server end the round of a frozen node soon, since all
/// other nodes wait for it.
pub(crate) const BEGIN: &str =
    "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '1s'; SET LOCAL lock_timeout = '2s'";

/// The outcome of a round.
pub(crate) struct RoundResult {
    /// The share of the node now.
    pub share: PartitionShare,
    /// Whether it could not take a partition because a claim is still under way in it.
    pub is_short: bool,
}

/// A node makes its round. The other nodes get the notification if it gives up a partition.
pub(crate) async fn take_round(
    session: &Session,
    clock: &dyn Clock,
    round: PartitionRound,
    notification: &str,
) -> Result<RoundResult, Fault> {
    let (mut maker, mut locker, mut writer) = (session, session, session);
    let (begun, made, rows) = tokio::join!(
        biased;
        session.run(BEGIN),
        partitions::make(&mut maker, round.count),
        partitions::lock(&mut locker),
    );
    begun?;
    made?;
    let rows = rows?;
    // Waiting for the other rounds took time.
    let now = clock.now();
    let others = others(session, round, now).await?;
    let mut changes = round.changes(&rows, &others, now);
    let is_short = !lock_taken(session, &rows, &mut changes).await?;
    let gives_up = changes.iter().any(|row| row.owner.is_none());
    let (written, committed, notified) = tokio::join!(
        biased;
        partitions::write(&mut writer, &changes),
        session.run("COMMIT"),
        notify(session, gives_up.then_some(notification)),
    );
    written?;
    committed?;
    notified?;
    changes.retain(|row| row.owner == Some(round.node));
    let look_again_at = if is_short { Some(now) } else { round.next_expiry(&rows, &others, now) };
    Ok(RoundResult { share: PartitionShare { owned: changes, look_again_at }, is_short })
}

/// A node leaves, and the others are notified.
pub(crate) async fn leave(session: &Session, now: Timestamp, node: NodeId, notification: &str) -> Result<(), Fault> {
    let (node, now) = (node_column(node), now.as_millis());
    let leave: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&node, &now];
    let (begun, locked, left, committed, notified) = tokio::join!(
        biased;
        session.run(BEGIN),
        session.query(Sql::PartitionLock, &[]),
        session.execute(Sql::PartitionLeave, &leave),
        session.run("COMMIT"),
        notify(session, Some(notification)),
    );
    begun?;
    locked?;
    left?;
    committed?;
    notified
}

/// Makes the node a member. Returns the others, without the expired ones, which are removed.
async fn others(session: &Session, round: PartitionRound, now: Timestamp) -> Result<Vec<Member>, Fault> {
    let until = round.expires_at(now).as_millis();
    let rows = session.query(Sql::PartitionMemberSaw, &[&node_column(round.node), &now.as_millis(), &until]).await?;
    let member = |row: &Row| {
        let expires_at = Timestamp::from_millis(row.get(1));
        Member { node: node_from_column(row.get(0)), expires_at }
    };
    Ok(rows.iter().map(member).collect())
}

/// Locks the partitions that change hands against claims. Drops the changes that could not be
/// locked. Returns whether all were.
async fn lock_taken(session: &Session, rows: &[Ownership], changes: &mut Vec<Ownership>) -> Result<bool, Fault> {
    let is_taken = |change: &Ownership| {
        let before = rows.binary_search_by_key(&change.partition, |row| row.partition);
        before.is_ok_and(|place| rows[place].term != change.term)
    };
    let wanted: Vec<i32> =
        changes.iter().filter(|change| is_taken(change)).map(|change| i32::from(change.partition.number())).collect();
    if wanted.is_empty() {
        return Ok(true);
    }
    let locked = session.query(Sql::PartitionTake, &[&wanted]).await?;
    let mut locked: Vec<i32> = locked.iter().map(|row| row.get(0)).collect();
    locked.sort_unstable();
    changes.retain(|change| !is_taken(change) || locked.binary_search(&i32::from(change.partition.number())).is_ok());
    Ok(locked.len() == wanted.len())
}

async fn notify(session: &Session, notification: Option<&str>) -> Result<(), Fault> {
    if let Some(notification) = notification {
        session.query(Sql::Notify, &[&notification]).await?;
    }
    Ok(())
}
