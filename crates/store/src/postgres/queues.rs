//! What queues are set to.

use std::collections::HashMap;

use punctual_core::condition::Condition;
use punctual_core::queues::{Change, Changed, Live, Queue, QueueWithCounts};
use punctual_core::state::State;
use tokio_postgres::Row;

use super::connection::Session;
use super::fault::Fault;
use super::limits;
use super::statements::Sql;
use crate::queue_columns::{self, QueueRow};
use crate::review::lets_go;

/// What became of a change.
pub(crate) struct QueueWrite {
    pub changed: Changed,
    /// The queue has ceased to hold what waits behind its dead letters.
    pub lets_go: bool,
}

impl QueueWrite {
    fn nothing(changed: Changed) -> Self {
        Self { changed, lets_go: false }
    }
}

/// Changes a queue, when the claims that are under way in it have ended. `news` is what the other nodes are told.
pub(crate) async fn change(
    session: &Session,
    tenant: &str,
    name: &str,
    condition: &Condition,
    change: Change,
    news: &str,
) -> Result<QueueWrite, Fault> {
    let (begin, names) = (limits::begin_change(tenant, name), [name]);
    let names = names.as_slice();
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&tenant, &names];
    let (begun, rows) = tokio::join!(biased; session.run(&begin), session.query(Sql::QueueGet, &parameters));
    begun?;
    let set = rows?.first().map(queue_of).transpose()?;
    // What everybody is told of it: one that was removed is not there while nothing is in it, and its version goes on.
    let told = match &set {
        Some(queue) if !queue.removed => Some(queue.clone()),
        _ => queue(session, tenant, name).await?.map(|told| told.queue),
    };
    if !condition.holds(told.as_ref().map(|queue| queue.version)) {
        session.run("ROLLBACK").await?;
        return Ok(QueueWrite::nothing(Changed::AtAnother(told)));
    }
    if let Some(queue) = told.filter(|queue| change.is_done(queue)) {
        session.run("ROLLBACK").await?;
        return Ok(QueueWrite::nothing(Changed::Done(queue)));
    }
    let before = set.unwrap_or_else(|| Queue::unset(tenant, name));
    let settings = before.settings.clone();
    let queue = change.apply(before);
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
    Ok(QueueWrite { lets_go: lets_go(&settings, &queue.settings), changed: Changed::Done(queue) })
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

/// A queue that restricts nothing has no gate.
async fn put_gate(session: &Session, queue: &Queue) -> Result<u64, Fault> {
    let settings = &queue.settings;
    let max_depth = settings.max_depth.map(|most| i64::try_from(most).unwrap_or(i64::MAX));
    if !queue.is_gated() && max_depth.is_none() {
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

/// A queue that exists.
pub(crate) async fn queue(session: &Session, tenant: &str, name: &str) -> Result<Option<QueueWithCounts>, Fault> {
    let told = told(session, tenant, &[name.to_owned()]).await?.pop();
    if told.as_ref().is_some_and(|told| told.queue.version == 0)
        && session.query(Sql::QueueUsed, &[&tenant, &name]).await?.is_empty()
    {
        return Ok(None);
    }
    Ok(told.filter(|told| !told.queue.removed || told.live.any()))
}

/// The queues of a tenant by name.
pub(crate) async fn queues(
    session: &Session,
    tenant: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<QueueWithCounts>, Fault> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = session.query(Sql::QueueNames, &[&tenant, &after.unwrap_or_default(), &limit]).await?;
    let names: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    told(session, tenant, &names).await
}

/// Every queue that was set or paused.
pub(crate) async fn special(session: &Session) -> Result<Vec<Queue>, Fault> {
    session.query(Sql::QueueSpecial, &[]).await?.iter().map(queue_of).collect()
}

/// The queues with these names and their live tasks, in this order.
async fn told(session: &Session, tenant: &str, names: &[String]) -> Result<Vec<QueueWithCounts>, Fault> {
    let mut set: HashMap<String, Queue> = HashMap::new();
    for row in session.query(Sql::QueueGet, &[&tenant, &names]).await? {
        let queue = queue_of(&row)?;
        set.insert(queue.name.clone(), queue);
    }
    let mut live: HashMap<String, Live> = HashMap::new();
    for row in session.query(Sql::QueueCounts, &[&tenant, &names]).await? {
        let state = State::from_code(i64::from(row.get::<_, i16>(1)));
        queue_columns::add(live.entry(row.get(0)).or_default(), state, row.get(2));
    }
    let told = names.iter().map(|name| QueueWithCounts {
        queue: set.remove(name).unwrap_or_else(|| Queue::unset(tenant, name)),
        live: live.remove(name).unwrap_or_default(),
    });
    Ok(told.collect())
}

fn queue_of(row: &Row) -> Result<Queue, Fault> {
    let row = QueueRow {
        tenant: row.get(0),
        name: row.get(1),
        settings: row.get(2),
        paused_at: row.get(3),
        paused_by: row.get(4),
        pause_reason: row.get(5),
        paused_until: row.get(6),
        version: row.get(7),
    };
    row.queue().map_err(Fault::Corrupt)
}
