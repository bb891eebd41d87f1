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

    async fn queues_changed_since(&self, after: u64) -> Result<Vec<Queue>, StoreError> {
        self.readers().call(move |session| changed_since(session, after)).await
    }

    async fn wait_for_limit_changes(&self) -> LimitChanges {
        self.shared.limit_watch.wait().await
    }
}

/// The queues that changed after a number; from zero on every queue that is set or paused.
pub(crate) fn changed_since(session: &mut Session<'_>, after: u64) -> Result<Vec<Queue>, Fault> {
    let complaints = Arc::clone(&session.queue_complaints);
    let changed = ready(queues::changed_since(session, &complaints, after))?;
    Ok(changed.into_iter().map(|read| read.queue).collect())
}

/// Changes a queue, and its limits in the writer's cache. The bucket is a row of its own.
fn change(
    session: &mut Session<'_>,
    key: (&str, &str),
    condition: &Condition,
    change: QueueChange,
) -> Result<Changed, Fault> {
    let complaints = Arc::clone(&session.queue_complaints);
    let (mut queue, releases_tasks) = match ready(queues::decide(session, &complaints, key, condition, change))? {
        QueueDecision::Answer(changed) => return Ok(changed),
        QueueDecision::Write { queue, releases_tasks } => (queue, releases_tasks),
    };
    if releases_tasks {
        outbox::begin_review_round(session);
    }
    queue.change_number = ready(queues::put(session, &queue))?;
    if queue.settings.rate_limit.is_none() {
        session.statements.get(Sql::BucketDrop)?.execute(key)?;
    }
    session.limits.put(&queue);
    Ok(Changed::Done(queue))
}
