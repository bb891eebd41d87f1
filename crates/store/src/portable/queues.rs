//! The settings and pauses of queues. The stores add the lock of a change and the tables of limits.

use std::collections::HashMap;

use punctual_core::condition::Condition;
use punctual_core::queues::{LiveCounts, Queue, QueueChange, QueueDecision, QueueWithCounts};
use punctual_core::state::State;

use super::lists::Names;
use super::{Connection, Corrupt, Parameter, PortableSql, Row};
use crate::columns::{count_column, number_column};
use crate::queue_columns::{self, QueueComplaints, QueueRow, ReadQueue};

/// Reads a queue and decides what a change makes of it. The caller has locked the queue and writes
/// the decision.
pub(crate) async fn decide<C: Connection>(
    connection: &mut C,
    complaints: &QueueComplaints,
    (tenant, name): (&str, &str),
    condition: &Condition,
    change: QueueChange,
) -> Result<QueueDecision, C::Fault> {
    let stored = stored(connection, complaints, tenant, &[name.to_owned()]).await?.remove(name);
    let shown = match &stored {
        Some(queue) if !queue.removed => stored.clone(),
        _ => queue(connection, complaints, tenant, name).await?.map(|shown| shown.queue),
    };
    Ok(change.decide((tenant, name), condition, stored, shown))
}

/// Writes a queue; returns the number of the change.
pub(crate) async fn put<C: Connection>(connection: &mut C, queue: &Queue) -> Result<u64, C::Fault> {
    let row = QueueRow::of(queue);
    let parameters: [&dyn Parameter; 8] = [
        &row.tenant,
        &row.name,
        &row.settings,
        &row.paused_at,
        &row.paused_by,
        &row.pause_reason,
        &row.paused_until,
        &row.version,
    ];
    let rows = connection.query(PortableSql::QueuePut, &parameters).await?;
    let number =
        rows.first().ok_or_else(|| Corrupt("a queue was written without a number".to_owned()))?.get::<i64>(0)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

/// A queue that exists, with its counts.
pub(crate) async fn queue<C: Connection>(
    connection: &mut C,
    complaints: &QueueComplaints,
    tenant: &str,
    name: &str,
) -> Result<Option<QueueWithCounts>, C::Fault> {
    let found = with_counts(connection, complaints, tenant, &[name.to_owned()]).await?.pop();
    let is_stored = found.as_ref().is_some_and(|found| found.queue.version > 0);
    if !is_stored && connection.query(PortableSql::QueueUsed, &[&tenant, &name]).await?.is_empty() {
        return Ok(None);
    }
    Ok(found.filter(|found| !found.queue.removed || found.live.any()))
}

/// The queues of a tenant by name.
pub(crate) async fn queues<C: Connection>(
    connection: &mut C,
    complaints: &QueueComplaints,
    tenant: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<QueueWithCounts>, C::Fault> {
    let parameters: [&dyn Parameter; 3] = [&tenant, &after.unwrap_or_default(), &count_column(limit)];
    let rows = connection.query(PortableSql::QueueNames, &parameters).await?;
    let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect::<Result<_, Corrupt>>()?;
    with_counts(connection, complaints, tenant, &names).await
}

/// The queues that changed after a number, the removed ones among them. From zero on: every queue
/// that is set or paused.
pub(crate) async fn changed_since<C: Connection>(
    connection: &mut C,
    complaints: &QueueComplaints,
    after: u64,
) -> Result<Vec<ReadQueue>, C::Fault> {
    let rows = connection.query(PortableSql::QueueChanged, &[&number_column(after)]).await?;
    Ok(rows.iter().map(|row| Ok(complaints.read(queue_row(row)?))).collect::<Result<_, Corrupt>>()?)
}

/// The live tasks of all queues together. The cost is the same however many there are.
pub(crate) async fn live_counts<C: Connection>(connection: &mut C) -> Result<LiveCounts, C::Fault> {
    let mut live = LiveCounts::default();
    for row in connection.query(PortableSql::LiveCounts, &[]).await? {
        queue_columns::add(&mut live, State::from_code(row.get::<i64>(0)?), row.get(1)?);
    }
    Ok(live)
}

/// The queues with these names and their live tasks, in this order.
async fn with_counts<C: Connection>(
    connection: &mut C,
    complaints: &QueueComplaints,
    tenant: &str,
    names: &[String],
) -> Result<Vec<QueueWithCounts>, C::Fault> {
    let mut stored = stored(connection, complaints, tenant, names).await?;
    let mut live: HashMap<String, LiveCounts> = HashMap::new();
    for row in connection.query(PortableSql::QueueCounts, &[&tenant, &Names(names)]).await? {
        let state = State::from_code(row.get::<i64>(1)?);
        queue_columns::add(live.entry(row.get(0)?).or_default(), state, row.get(2)?);
    }
    let shown = names.iter().map(|name| QueueWithCounts {
        queue: stored.remove(name).unwrap_or_else(|| Queue::unset(tenant, name)),
        live: live.remove(name).unwrap_or_default(),
    });
    Ok(shown.collect())
}

/// The rows of these queues, by name. A queue that was never set has none.
async fn stored<C: Connection>(
    connection: &mut C,
    complaints: &QueueComplaints,
    tenant: &str,
    names: &[String],
) -> Result<HashMap<String, Queue>, C::Fault> {
    let rows = connection.query(PortableSql::QueueGet, &[&tenant, &Names(names)]).await?;
    let queue = |row: &C::Row| {
        let queue = complaints.read(queue_row(row)?).queue;
        Ok((queue.name.clone(), queue))
    };
    Ok(rows.iter().map(queue).collect::<Result<_, Corrupt>>()?)
}

fn queue_row(row: &impl Row) -> Result<QueueRow, Corrupt> {
    Ok(QueueRow {
        tenant: row.get(0)?,
        name: row.get(1)?,
        settings: row.get(2)?,
        paused_at: row.get(3)?,
        paused_by: row.get(4)?,
        pause_reason: row.get(5)?,
        paused_until: row.get(6)?,
        version: row.get(7)?,
        change_number: row.get(8)?,
    })
}
