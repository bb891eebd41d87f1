//! Makes tasks of what was submitted by SQL, by the rules of every other submission.
//!
//! Runs on every node that has the role `api` or `scheduler` and a store that nodes share.

use std::sync::Arc;

use punctual_api::metrics::Metrics;
use punctual_core::ids::NodeId;
use punctual_store::postgres::{EnqueuedTask, PostgresStore};
use punctual_submission::{SubmissionRules, TaskFactory};
use tokio_util::sync::CancellationToken;

/// Empties the store's inbox until `stop`.
pub async fn receive(
    store: PostgresStore,
    rules: SubmissionRules,
    node: NodeId,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let payload_bytes = rules.payload_bytes;
    let factory = TaskFactory::new(rules, node);
    let validate = move |enqueued: &EnqueuedTask| {
        let EnqueuedTask { id, tenant, created_at, submission, .. } = enqueued;
        let task = factory.of_enqueued(tenant, *id, *created_at, submission);
        metrics.enqueued(task.is_ok());
        task
    };
    store.receive(Arc::new(validate), payload_bytes, stop.cancelled()).await;
}
