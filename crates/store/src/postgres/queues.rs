//! The settings and pauses of queues.

use std::collections::HashMap;

use punctual_core::condition::Condition;
use punctual_core::queues::{Changed, LiveCounts, Queue, QueueChange, QueueDecision, QueueWithCounts};
use punctual_core::state::State;
use tokio_postgres::Row;

use super::connection::Session;
use super::fault::Fault;
use super::limits;
use super::statements::Sql;
use crate::queue_columns::{self, QueueComplaints, QueueRow, ReadQueue};

/// The outcome of a change.
pub(crate) struct QueueWrite {
    pub changed: Changed,
    /// Whether the queue no longer holds the tasks behind its dead letters.
    pub releases_held: bool,
}

/// Changes a queue once the claims under way in it have ended. `news` is the notification for the
/// other nodes.
pub(crate) async fn change(
    session: &Session,
    complaints: &QueueComplaints,
    (tenant, name): (&str, &str),
    condition: &Condition,
    change: QueueChange,
    news: &str,
) -> Result<QueueWrite, Fault> {
    let (begin, names) = (limits::begin_change(tenant, name), [name]);
    let names = names.as_slice();
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&tenant, &names];
    let (begun, rows) = tokio::join!(biased; session.run(&begin), session.query(Sql::QueueGet, &parameters));
    begun?;
    let stored = rows?.first().map(|row| complaints.read(queue_row(row)).queue);
    let shown = match &stored {
        Some(queue) if !queue.removed => Some(queue.clone()),
        _ => queue(session, complaints, tenant, name).await?.map(|shown| shown.queue),
    };
    let (queue, releases_held) = match change.decide((tenant, name), condition, stored, shown) {
        QueueDecision::Answer(changed) => {
            session.run("ROLLBACK").await?;
            return Ok(QueueWrite { changed, releases_held: false });
        }
        QueueDecision::Write { queue, releases_held } => (queue, releases_held),
    };
    let notify: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&news];
    let (put, gated, told, committed) = tokio::join!(
        biased;
        put(session, &queue),
        put_gate(session, &queue),
        session.query(Sql::Notify, &notify),
        session.run("COMMIT"),
    );
    put?;
    gated?;
    told?;
    committed?;
    Ok(QueueWrite { releases_held, changed: Changed::Done(queue) })
}

async fn put(session: &Session, queue: &Queue) -> Result<u64, Fault> {
    let row = QueueRow::of(queue);
    session
        .execute(
            Sql::QueuePut,
            &[
                &row.tenant,
                &row.name,
                &row.settings,
                &row.paused_at,
                &row.paused_by,
                &row.pause_reason,
                &row.paused_until,
                &row.version,
            ],
        )
        .await
}

/// Writes the limits of a queue; one without limits has no row in `gates`.
async fn put_gate(session: &Session, queue: &Queue) -> Result<u64, Fault> {
    let settings = &queue.settings;
    let max_depth = settings.max_depth.map(|most| i64::try_from(most).unwrap_or(i64::MAX));
    if !queue.limits_claims() && max_depth.is_none() {
        return session.execute(Sql::GateDrop, &[&queue.tenant, &queue.name]).await;
    }
    let max_concurrency = settings.max_concurrency.map(i64::from);
    let per_second = settings.rate_limit.map(|limit| limit.per_second);
    let burst = settings.rate_limit.map(|limit| i64::from(limit.burst));
    let until = queue.pause.as_ref().and_then(|pause| pause.until).map(punctual_core::time::Timestamp::as_millis);
    let (tenant, name, is_paused) = (&queue.tenant, &queue.name, queue.pause.is_some());
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 8] =
        [tenant, name, &max_concurrency, &per_second, &burst, &max_depth, &is_paused, &until];
    session.execute(Sql::GatePut, &parameters).await
}

/// A queue that exists, with its counts.
pub(crate) async fn queue(
    session: &Session,
    complaints: &QueueComplaints,
    tenant: &str,
    name: &str,
) -> Result<Option<QueueWithCounts>, Fault> {
    let shown = with_counts(session, complaints, tenant, &[name.to_owned()]).await?.pop();
    if shown.as_ref().is_some_and(|shown| shown.queue.version == 0)
        && session.query(Sql::QueueUsed, &[&tenant, &name]).await?.is_empty()
    {
        return Ok(None);
    }
    Ok(shown.filter(|shown| !shown.queue.removed || shown.live.any()))
}

/// The queues of a tenant by name.
pub(crate) async fn queues(
    session: &Session,
    complaints: &QueueComplaints,
    tenant: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<QueueWithCounts>, Fault> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = session.query(Sql::QueueNames, &[&tenant, &after.unwrap_or_default(), &limit]).await?;
    let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    with_counts(session, complaints, tenant, &names).await
}

/// Every queue that was set or paused.
pub(crate) async fn special(session: &Session, complaints: &QueueComplaints) -> Result<Vec<ReadQueue>, Fault> {
    let rows = session.query(Sql::QueueSpecial, &[]).await?;
    Ok(rows.iter().map(|row| complaints.read(queue_row(row))).collect())
}

/// The queues with these names and their live tasks, in this order.
async fn with_counts(
    session: &Session,
    complaints: &QueueComplaints,
    tenant: &str,
    names: &[String],
) -> Result<Vec<QueueWithCounts>, Fault> {
    let mut set: HashMap<String, Queue> = HashMap::new();
    for row in session.query(Sql::QueueGet, &[&tenant, &names]).await? {
        let queue = complaints.read(queue_row(&row)).queue;
        set.insert(queue.name.clone(), queue);
    }
    let mut live: HashMap<String, LiveCounts> = HashMap::new();
    for row in session.query(Sql::QueueCounts, &[&tenant, &names]).await? {
        let state = State::from_code(i64::from(row.get::<_, i16>(1)));
        queue_columns::add(live.entry(row.get(0)).or_default(), state, row.get(2));
    }
    let shown = names.iter().map(|name| QueueWithCounts {
        queue: set.remove(name).unwrap_or_else(|| Queue::unset(tenant, name)),
        live: live.remove(name).unwrap_or_default(),
    });
    Ok(shown.collect())
}

fn queue_row(row: &Row) -> QueueRow {
    QueueRow {
        tenant: row.get(0),
        name: row.get(1),
        settings: row.get(2),
        paused_at: row.get(3),
        paused_by: row.get(4),
        pause_reason: row.get(5),
        paused_until: row.get(6),
        version: row.get(7),
    }
}
