//! Checks a submitted task and makes the task that is stored. Pure: the caller gives the time.
//!
//! Called by the routes that take new tasks and by [`TaskFactory`](crate::TaskFactory). Invariant:
//! the checks do not depend on each other, so one call reports every fault of a task.

use punctual_client as wire;
use punctual_core::ids::NodeId;
use punctual_core::json::Json;
use punctual_core::lane::LaneKey;
use punctual_core::state::{By, State};
use punctual_core::task::{Body, Dependencies, NewTask};
use punctual_core::time::Timestamp;
use punctual_core::trail::{Actor, Trail};

use crate::faults::Faults;
use crate::fingerprint::Meaning;
use crate::{BatchContext, SubmissionRules};

/// The queue of a task that names none.
pub const DEFAULT_QUEUE: &str = "default";

/// Checks the tasks of one request.
pub struct TaskValidator<'a> {
    pub(crate) rules: &'a SubmissionRules,
    pub(crate) tenant: &'a str,
    now: Timestamp,
    trail: Trail,
}

impl<'a> TaskValidator<'a> {
    /// A validator for tasks that `tenant` submits to `node` at `now`.
    pub fn new(rules: &'a SubmissionRules, tenant: &'a str, now: Timestamp, node: NodeId) -> Self {
        Self::by(rules, tenant, &By { now, node, actor: Actor::Client })
    }

    /// A validator for tasks that `tenant` submits in this way.
    pub(crate) fn by(rules: &'a SubmissionRules, tenant: &'a str, by: &By<'_>) -> Self {
        Self { rules, tenant, now: by.now, trail: by.submitted(State::Pending) }
    }

    /// Makes the task to store; none only with a fault. `header_key` is the value of the header
    /// `Idempotency-Key`. A task of a batch may depend on other tasks of the batch.
    pub fn check(
        &self,
        faults: &mut Faults,
        new: wire::NewTask,
        header_key: Option<String>,
        batch: &BatchContext<'_>,
    ) -> Option<NewTask> {
        let ordering_key = faults.ordering_key(new.ordering_key);
        let concurrency_key = faults.concurrency_key(new.concurrency_key);
        let depends_on = new.depends_on.unwrap_or_default();
        let dependencies = Dependencies {
            ids: faults.depends_on(&depends_on, batch),
            on_failure: new.on_dependency_failure.unwrap_or_default().into(),
        };
        faults.name("/type", &new.kind);
        let queue = new.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned());
        faults.name("/queue", &queue);
        let payload = new.payload.unwrap_or_else(Json::null);
        faults.payload(&payload, self.rules.payload_bytes);
        let callback_body = new.callback_body.unwrap_or_default().into();
        let networks = &self.rules.networks;
        let (route, callback) = faults.callback(new.callback_url, new.callback_headers, callback_body, networks);
        let when = faults.when(new.execute_at.as_deref(), new.delay_seconds);
        let execute_at = when.instant(self.now);
        let expires_at = new.expires_at.as_deref().and_then(|text| faults.instant("/expires_at", text));
        faults.expiry("/expires_at", expires_at, execute_at, self.now);
        let priority = new.priority.as_ref().map_or(wire::Priority::DEFAULT, |priority| faults.priority(priority));
        let retry_policy = match &new.retry_policy {
            Some(given) => faults.retry_policy(given, &self.rules.retry_policy),
            None => self.rules.retry_policy.clone(),
        };
        let timeout_millis = faults.timeout(new.timeout_seconds, self.rules.timeout_millis);
        let metadata = new.metadata.unwrap_or_default();
        faults.metadata(&metadata);
        let key = faults.key(new.idempotency_key, header_key);
        if !faults.is_empty() {
            return None;
        }

        let lane = LaneKey { tenant: self.tenant.to_owned(), queue, kind: new.kind, priority, route };
        let body = Body {
            payload,
            callback,
            retry_policy,
            timeout_millis,
            metadata,
            schedule_id: None,
            idempotency_key: key.clone(),
            ordering_key,
            concurrency_key,
            dependencies,
        };
        let meaning = Meaning {
            lane: &lane,
            when,
            expires_at,
            depends_on: &depends_on,
            retry_policy: new.retry_policy.as_ref(),
            has_timeout: new.timeout_seconds.is_some(),
            body: &body,
        };
        let idempotency = key.map(|key| meaning.under(key));
        // A task that passed has a time to run; otherwise it would only expire.
        debug_assert!(expires_at.is_none_or(|expires_at| expires_at > execute_at), "it can run before it expires");
        let task = NewTask {
            id: batch.own_id(),
            lane,
            created_at: self.now,
            execute_at,
            due_at: execute_at,
            expires_at,
            idempotency,
            body,
            trail: self.trail.clone(),
        };
        Some(self.with_queue_defaults(task, new.retry_policy.as_ref(), new.timeout_seconds.is_some()))
    }
}

#[cfg(test)]
mod tests;
