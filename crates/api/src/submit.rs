//! Judges what a submitter sends and makes of it what is stored. Pure: the caller gives the
//! time.
//!
//! Called by the routes that take new tasks and changes of tasks. All faults of a request
//! are told at once, each with a pointer to its place; what comes out satisfies every bound
//! of `core::task::limits`.

mod among;
mod callback;
mod enqueued;
pub mod fields;
pub mod fingerprint;
pub mod key;
pub mod members;
pub mod patch;
pub mod queue;

use punctual_client as wire;
use punctual_core::ids::NodeId;
use punctual_core::json::Json;
use punctual_core::lane::LaneKey;
use punctual_core::state::{By, State};
use punctual_core::task::{Body, Dependencies, Idempotency, NewTask};
use punctual_core::time::Timestamp;
use punctual_core::trail::{Actor, Trail};

use crate::problem::Problem;
use crate::state::ApiConfig;
pub use among::Among;
use fields::Faults;
use fingerprint::Meaning;

/// The queue of a task that names none.
const DEFAULT_QUEUE: &str = "default";

/// Judges the tasks of one request.
pub struct Submitter<'a> {
    config: &'a ApiConfig,
    tenant: &'a str,
    now: Timestamp,
    trail: Trail,
}

impl<'a> Submitter<'a> {
    /// For tasks that `tenant` submits to `node` at `now`.
    pub fn new(config: &'a ApiConfig, tenant: &'a str, now: Timestamp, node: NodeId) -> Self {
        let trail = By { now, node, actor: Actor::Client }.submitted(State::Pending);
        Self { config, tenant, now, trail }
    }

    /// The task to store for what was sent; `header_key` is what the header `Idempotency-Key` said.
    pub fn check(&self, new: wire::NewTask, header_key: Option<String>) -> Result<NewTask, Problem> {
        self.judge(new, header_key, &Among::nobody())
    }

    /// The same for a task of a batch, which may depend on its other tasks.
    pub fn check_member(&self, new: wire::NewTask, among: &Among<'_>) -> Result<NewTask, Problem> {
        self.judge(new, None, among)
    }

    fn judge(&self, new: wire::NewTask, header_key: Option<String>, among: &Among<'_>) -> Result<NewTask, Problem> {
        let mut faults = Faults::default();
        let ordering_key = faults.ordering_key(new.ordering_key);
        let depends_on = new.depends_on.unwrap_or_default();
        let dependencies = Dependencies {
            ids: faults.depends_on(&depends_on, among),
            on_failure: new.on_dependency_failure.unwrap_or_default().into(),
        };
        faults.name("/type", &new.kind);
        let queue = new.queue.unwrap_or_else(|| DEFAULT_QUEUE.to_owned());
        faults.name("/queue", &queue);
        let payload = new.payload.unwrap_or_else(Json::null);
        faults.payload(&payload, self.config.payload_bytes);
        let (route, callback) = faults.callback(new.callback_url, new.callback_headers, &self.config.networks);
        let when = faults.when(new.execute_at.as_deref(), new.delay_seconds);
        let execute_at = when.instant(self.now);
        let expires_at = new.expires_at.as_deref().and_then(|text| faults.instant("/expires_at", text));
        faults.expiry("/expires_at", expires_at, execute_at, self.now);
        let priority = new.priority.as_ref().map_or(wire::Priority::DEFAULT, |priority| faults.priority(priority));
        let retry_policy = match &new.retry_policy {
            Some(given) => faults.retry_policy(given, self.config.retry_policy),
            None => self.config.retry_policy,
        };
        let timeout_millis = faults.timeout(new.timeout_seconds, self.config.timeout_millis);
        let metadata = new.metadata.unwrap_or_default();
        faults.metadata(&metadata);
        let key = faults.key(new.idempotency_key, header_key);
        faults.finish()?;

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
            dependencies,
        };
        let idempotency = key.map(|key| Idempotency {
            key,
            fingerprint: Meaning { lane: &lane, when, expires_at, depends_on: &depends_on, body: &body }.fingerprint(),
        });
        let task = NewTask {
            id: among.own_id(),
            lane,
            created_at: self.now,
            execute_at,
            due_at: execute_at,
            expires_at,
            idempotency,
            body,
            trail: self.trail.clone(),
        };
        Ok(self.of_queue(task, new.retry_policy.as_ref(), new.timeout_seconds.is_some()))
    }
}

#[cfg(test)]
mod tests;
