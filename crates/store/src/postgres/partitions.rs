//! Which node owns which partition. A round is one transaction, and one node at a time makes a
//! round.
//!
//! The locks on the rows make rounds wait for each other, but claims do not wait for renewals. Only
//! the partitions that a node takes are locked against claims too (`terms`). So no partition
//! changes hands while a claim in the term of its last owner is under way, and a later claim sees
//! the new owner. A node that gives up partitions notifies the others, so that they need not wait
//! for their next round.

use punctual_core::clock::Clock;
use punctual_core::ids::NodeId;
use punctual_core::partitions::Ownership;
use punctual_core::time::Timestamp;
use tokio_postgres::Row;

use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use crate::columns::{node_column, node_from_column, number_column};
use crate::partition_round::{PartitionRound, ownership as ownership_of_columns};

/// How a round begins. The timeouts make the server end the round of a frozen node soon, since all
/// other nodes wait for it.
pub(crate) const BEGIN: &str =
    "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '1s'; SET LOCAL lock_timeout = '2s'";

/// The outcome of a round.
pub(crate) struct RoundResult {
    /// What the node owns now.
    pub owned: Vec<Ownership>,
    /// Whether it could not take a partition because a claim is still under way in it.
    pub is_short: bool,
}

/// A node makes its round. `news` is the notification for the other nodes if it gives something up.
pub(crate) async fn take_round(
    session: &Session,
    clock: &dyn Clock,
    round: PartitionRound,
    news: &str,
) -> Result<RoundResult, Fault> {
    let count = i32::from(round.count);
    let make: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&count];
    let (begun, made, rows) = tokio::join!(
        biased;
        session.run(BEGIN),
        session.execute(Sql::PartitionMake, &make),
        session.query(Sql::PartitionLock, &[]),
    );
    begun?;
    made?;
    let rows: Vec<Ownership> = rows?.iter().map(ownership_of).collect();
    // Waiting for the other rounds took time.
    let now = clock.now();
    let members = members(session, round, now).await?;
    let mut changes = round.changes(&rows, &members, now);
    let is_short = !lock_taken(session, &rows, &mut changes).await?;
    let gives_up = changes.iter().any(|row| row.owner.is_none());
    let (written, committed, told) = tokio::join!(
        biased;
        write(session, &changes),
        session.run("COMMIT"),
        tell(session, gives_up.then_some(news)),
    );
    written?;
    committed?;
    told?;
    changes.retain(|row| row.owner == Some(round.node));
    Ok(RoundResult { owned: changes, is_short })
}

/// A node leaves, and the others are notified.
pub(crate) async fn leave(session: &Session, now: Timestamp, node: NodeId, news: &str) -> Result<(), Fault> {
    let (node, now) = (node_column(node), now.as_millis());
    let leave: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&node, &now];
    let (begun, locked, left, committed, told) = tokio::join!(
        biased;
        session.run(BEGIN),
        session.query(Sql::PartitionLock, &[]),
        session.execute(Sql::PartitionLeave, &leave),
        session.run("COMMIT"),
        tell(session, Some(news)),
    );
    begun?;
    locked?;
    left?;
    committed?;
    told
}

/// Every partition that was ever owned, by number.
pub(crate) async fn ownership(session: &Session) -> Result<Vec<Ownership>, Fault> {
    Ok(session.query(Sql::PartitionList, &[]).await?.iter().map(ownership_of).collect())
}

fn ownership_of(row: &Row) -> Ownership {
    ownership_of_columns(row.get(0), row.get(1), row.get(2), row.get(3))
}

/// The nodes that take part: this one, and those that have not expired. (Expired ones are removed.)
async fn members(session: &Session, round: PartitionRound, now: Timestamp) -> Result<Vec<NodeId>, Fault> {
    let until = round.expires_at(now).as_millis();
    let rows = session.query(Sql::PartitionMemberSaw, &[&node_column(round.node), &now.as_millis(), &until]).await?;
    Ok(rows.iter().map(|row| node_from_column(row.get(0))).chain([round.node]).collect())
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

async fn write(session: &Session, changes: &[Ownership]) -> Result<(), Fault> {
    let number: Vec<i32> = changes.iter().map(|row| i32::from(row.partition.number())).collect();
    let owner: Vec<Option<i64>> = changes.iter().map(|row| row.owner.map(node_column)).collect();
    let term: Vec<i64> = changes.iter().map(|row| number_column(row.term)).collect();
    let expires_at: Vec<i64> = changes.iter().map(|row| row.expires_at.as_millis()).collect();
    session.execute(Sql::PartitionWrite, &[&number, &owner, &term, &expires_at]).await?;
    Ok(())
}

async fn tell(session: &Session, news: Option<&str>) -> Result<(), Fault> {
    if let Some(news) = news {
        session.query(Sql::Notify, &[&news]).await?;
    }
    Ok(())
}
