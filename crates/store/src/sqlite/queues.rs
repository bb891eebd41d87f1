//! Queues. The writer changes them. It also makes the claims, so none runs meanwhile.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_core::condition::Condition;
use punctual_core::queues::{Changed, LimitChanges, Queue, QueueChange, QueueDecision, QueueWithCounts, Queues};
use punctual_core::store::StoreError;

use super::fault::Fault;
use super::job_queue::WriteClass;
use super::session::Session;
use super::statements::Sql;
use super::{SqliteStore, outbox};
use crate::portable::{queues, ready};
use crate::write_queue::Weight;

#[async_trait]
impl Queues for SqliteStore {
    async fn change_queue_at(
        &self,
        tenant: &str,
        name: &str,
        condition: &Condition,
        change: QueueChange,
    ) -> Result<Changed, StoreError> {
        let (tenant, name, condition) = (tenant.to_owned(), name.to_owned(), condition.clone());
        let work = move |session: &mut Session<'_>| self::change(session, (&tenant, &name), &condition, change);
        let changed = self.writer().call(WriteClass::Urgent, Weight::SMALL, work).await?;
        self.shared.limit_watch.changed();
        Ok(changed)
    }

    async fn queue(&self, tenant: &str, name: &str) -> Result<Option<QueueWithCounts>, StoreError> {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        let work = move |session: &mut Session<'_>| {
            let complaints = Arc::clone(&session.queue_complaints);
            ready(queues::queue(session, &complaints, &tenant, &name))
        };
        self.readers().call(work).await
    }

    async fn queues(
        &self,
        tenant: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<QueueWithCounts>, StoreError> {
        let tenant = tenant.to_owned();
        let work = move |session: &mut Session<'_>| {
            let complaints = Arc::clone(&session.queue_complaints);
            ready(queues::queues(session, &complaints, &tenant, after.as_deref(), limit))
        };
        self.readers().call(work).await
    }

    async fn special_queues(&self) -> Result<Vec<Queue>, StoreError> {
        self.readers().call(special).await
    }

    async fn wait_for_limit_changes(&self) -> LimitChanges {
        self.shared.limit_watch.wait().await
    }
}

/// Every queue that was set or paused.
pub(crate) fn special(session: &mut Session<'_>) -> Result<Vec<Queue>, Fault> {
    let complaints = Arc::clone(&session.queue_complaints);
    let special = ready(queues::special(session, &complaints))?;
    Ok(special.into_iter().map(|read| read.queue).collect())
}

/// Changes a queue. The cached limits are read again; the bucket is a row of its own.
fn change(
    session: &mut Session<'_>,
    key: (&str, &str),
    condition: &Condition,
    change: QueueChange,
) -> Result<Changed, Fault> {
    let complaints = Arc::clone(&session.queue_complaints);
    let (queue, releases_held) = match ready(queues::decide(session, &complaints, key, condition, change))? {
        QueueDecision::Answer(changed) => return Ok(changed),
        QueueDecision::Write { queue, releases_held } => (queue, releases_held),
    };
    if releases_held {
        outbox::begin_review_round(session);
    }
    ready(queues::put(session, &queue))?;
    if queue.settings.rate_limit.is_none() {
        session.statements.get(Sql::BucketDrop)?.execute(key)?;
    }
    session.limits.forget();
    Ok(Changed::Done(queue))
}
