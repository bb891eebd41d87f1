//! Queues. A change is a transaction on a connection of its own, because it waits for the claims
//! that are under way in the queue.

use async_trait::async_trait;
use punctual_core::condition::Condition;
use punctual_core::queues::{Changed, LimitChanges, Queue, QueueChange, QueueDecision, QueueWithCounts, Queues};
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;

use super::cluster::notifier::queues_have_changed;
use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use super::{PostgresStore, limits};
use crate::columns::number_column;
use crate::portable::queues;
use crate::queue_columns::QueueComplaints;

#[async_trait]
impl Queues for PostgresStore {
    async fn change_queue_at(
        &self,
        tenant: &str,
        name: &str,
        condition: &Condition,
        change: QueueChange,
    ) -> Result<Changed, StoreError> {
        let (notification, limits) = (queues_have_changed(self.node()), &self.writers().limits);
        let work = async |session: &Session| {
            self::change(session, &limits.complaints, (tenant, name), condition, change, &notification).await
        };
        let QueueWrite { changed, releases_tasks } = self.shared.changes.transact(work).await?;
        if releases_tasks {
            self.writers().outbox.begin_round();
        }
        // A queue without a row limits nothing and need not be remembered.
        if let Changed::Done(queue) = &changed
            && queue.version > 0
        {
            limits.learn_own(queue);
            limits.watch.changed();
        }
        Ok(changed)
    }

    async fn queue(&self, tenant: &str, name: &str) -> Result<Option<QueueWithCounts>, StoreError> {
        let complaints = &self.writers().limits.complaints;
        self.reads().call(async |mut session| queues::queue(&mut session, complaints, tenant, name).await).await
    }

    async fn queues(
        &self,
        tenant: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<QueueWithCounts>, StoreError> {
        let (complaints, after) = (&self.writers().limits.complaints, after.as_deref());
        self.reads()
            .call(async |mut session| queues::queues(&mut session, complaints, tenant, after, limit).await)
            .await
    }

    async fn queues_changed_since(&self, after: u64) -> Result<Vec<Queue>, StoreError> {
        let limits = &self.writers().limits;
        let read = async |mut session: &Session| queues::changed_since(&mut session, &limits.complaints, after).await;
        let changed = self.reads().call(read).await?;
        limits.learn(after, &changed);
        Ok(changed.into_iter().map(|read| read.queue).collect())
    }

    async fn wait_for_limit_changes(&self) -> LimitChanges {
        self.writers().limits.watch.wait().await
    }
}

/// The outcome of a change.
struct QueueWrite {
    changed: Changed,
    /// Whether tasks that wait may go on.
    releases_tasks: bool,
}

/// Changes a queue once the claims under way in it have ended. The other nodes get the
/// notification with the commit.
async fn change(
    session: &Session,
    complaints: &QueueComplaints,
    (tenant, name): (&str, &str),
    condition: &Condition,
    change: QueueChange,
    notification: &str,
) -> Result<QueueWrite, Fault> {
    let (begin, mut connection) = (limits::begin_change(tenant, name), session);
    let (begun, decision) = tokio::join!(
        biased;
        session.run(&begin),
        queues::decide(&mut connection, complaints, (tenant, name), condition, change),
    );
    begun?;
    let (mut queue, releases_tasks) = match decision? {
        QueueDecision::Answer(changed) => {
            session.run("ROLLBACK").await?;
            return Ok(QueueWrite { changed, releases_tasks: false });
        }
        QueueDecision::Write { queue, releases_tasks } => (queue, releases_tasks),
    };
    let notify: [&(dyn tokio_postgres::types::ToSql + Sync); 1] = [&notification];
    let (put, limited, notified, committed) = tokio::join!(
        biased;
        queues::put(&mut connection, &queue),
        put_limits(session, &queue),
        session.query(Sql::Notify, &notify),
        session.run("COMMIT"),
    );
    queue.change_number = put?;
    limited?;
    notified?;
    committed?;
    Ok(QueueWrite { releases_tasks, changed: Changed::Done(queue) })
}

/// Writes the limits of a queue as the columns that claims lock and read (the table `gates`). A
/// queue without limits has no row there.
async fn put_limits(session: &Session, queue: &Queue) -> Result<u64, Fault> {
    let (tenant, name, settings) = (&queue.tenant, &queue.name, &queue.settings);
    let max_depth = settings.max_depth.map(number_column);
    if !queue.limits_claims() && max_depth.is_none() {
        return session.execute(Sql::GateDrop, &[tenant, name]).await;
    }
    let max_concurrency = settings.max_concurrency.map(i64::from);
    let per_second = settings.rate_limit.map(|limit| limit.per_second);
    let burst = settings.rate_limit.map(|limit| i64::from(limit.burst));
    let is_paused = queue.pause.is_some();
    let until = queue.pause.as_ref().and_then(|pause| pause.until).map(Timestamp::as_millis);
    let max_per_key = settings.max_per_key.map(i64::from);
    let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 9] =
        [tenant, name, &max_concurrency, &per_second, &burst, &max_depth, &is_paused, &until, &max_per_key];
    session.execute(Sql::GatePut, &parameters).await
}
