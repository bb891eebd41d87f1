//! The inbox: makes tasks of submissions by SQL, by the rules of every other submission.
//!
//! Runs on every node with the role `api` or `scheduler`, if the store is shared.

use std::sync::Arc;

use punctual_store::postgres::EnqueuedTask;
use punctual_submission::TaskFactory;

use super::groups::Groups;
use super::parts::NodeParts;

/// Starts the loop that empties the inbox.
pub fn start(groups: &mut Groups, parts: &NodeParts) {
    let Some(store) = parts.postgres.clone() else { return };
    let (rules, metrics) = (parts.submission_rules(), parts.metrics.clone());
    let payload_bytes = rules.payload_bytes;
    let factory = TaskFactory::new(rules, parts.node);
    let validate = move |enqueued: &EnqueuedTask| {
        let EnqueuedTask { id, tenant, created_at, submission, .. } = enqueued;
        let task = factory.of_enqueued(tenant, *id, *created_at, submission);
        metrics.enqueued(task.is_ok());
        task
    };
    // It outlives the API: a call that names a task which SQL submitted waits for it.
    groups.cluster.spawn("inbox", |stop| async move {
        store.receive(Arc::new(validate), payload_bytes, stop.cancelled()).await;
    });
}
