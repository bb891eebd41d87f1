//! The task: what was submitted, its state, and its outcome.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, ScheduleId, TaskId};
use crate::json::Json;
use crate::lane::{Lane, LaneKey, Route};
use crate::retry::RetryPolicy;
use crate::state::{Position, State};
use crate::time::Timestamp;
use crate::trail::{Entry, Step, Trail};

/// The maxima of a task's fields, which the API and the stores both enforce.
pub mod limits {
    /// Characters of a type, a queue name, an idempotency key, a worker's name.
    pub const NAME: usize = 255;
    /// Characters of a callback URL.
    pub const URL: usize = 2_048;
    /// Extra headers of a webhook.
    pub const HEADERS: usize = 32;
    /// Bytes of all extra headers together.
    pub const HEADER_BYTES: usize = 8_192;
    /// Entries of the metadata.
    pub const METADATA: usize = 32;
    /// Characters of a metadata key.
    pub const METADATA_KEY: usize = 64;
    /// Characters of a metadata value.
    pub const METADATA_VALUE: usize = 512;
    /// Bytes of a run's result, its progress or its checkpoint.
    pub const RESULT: usize = 64 * 1_024;
    /// Characters kept of an error's code.
    pub const ERROR_CODE: usize = 64;
    /// Characters kept of an error's message and of its details.
    pub const ERROR_TEXT: usize = 4_096;
    /// Retries a policy may ask for.
    pub const RETRIES: u32 = 1_000;
    /// Delays that a policy may list.
    pub const RETRY_DELAYS: usize = 100;
    /// Kinds of failure that a policy may name.
    pub const RETRY_CONDITIONS: usize = 50;
    /// The longest delay of a retry, also one that a target or worker asks for: 30 days.
    pub const RETRY_DELAY_MILLIS: u64 = 30 * 24 * 3_600_000;
    /// Tasks that one task may depend on.
    pub const DEPENDENCIES: usize = 10_000;
    /// Dependencies of all tasks of one batch together.
    pub const BATCH_DEPENDENCIES: usize = 100_000;
    /// Tasks in one batch.
    pub const BATCH: usize = 10_000;
    /// Bytes of payload after which a claim takes no further task.
    pub const CLAIM_PAYLOAD: usize = 16 * 1_024 * 1_024;
    /// Tasks in one lease or settle call.
    pub const LEASE_BATCH: usize = 1_000;
}

/// A task that is about to be stored.
#[derive(Clone, Debug)]
pub struct NewTask {
    /// Its id.
    pub id: TaskId,
    /// The lane it waits in.
    pub lane: LaneKey,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When its submitter wants it to run.
    pub execute_at: Timestamp,
    /// When it may be dispatched: `execute_at`, or later if its queue has a jitter.
    pub due_at: Timestamp,
    /// It fails if it has not started by then.
    pub expires_at: Option<Timestamp>,
    /// The key that identifies a repeated submission, and a digest of what was submitted.
    pub idempotency: Option<Idempotency>,
    /// The rest.
    pub body: Body,
    /// Its first step.
    pub trail: Trail,
}

/// How a repeated submission is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The submitter's key, unique within the tenant.
    pub key: String,
    /// A digest of what was submitted under it.
    pub fingerprint: [u8; 32],
    /// The digest that earlier builds stored for the same submission, if it was another.
    pub earlier: Option<[u8; 32]>,
    /// Whether this task takes the key from a task that is `CANCELLED` or `FAILED`.
    pub replace_final: bool,
}

impl Idempotency {
    /// A key, and the only digest that was ever stored with such a submission.
    pub fn new(key: impl Into<String>, fingerprint: [u8; 32]) -> Self {
        Self { key: key.into(), fingerprint, earlier: None, replace_final: false }
    }

    /// Whether the submission that was stored with this digest was the same.
    pub fn is_repeat_of(&self, stored: &[u8]) -> bool {
        stored == self.fingerprint || self.earlier.is_some_and(|earlier| stored == earlier)
    }
}

/// What was submitted, apart from its time and its lane.
#[derive(Clone, Debug, PartialEq)]
pub struct Body {
    /// What the worker gets.
    pub payload: Json,
    /// Where it is pushed to; none for pull workers.
    pub callback: Option<Callback>,
    /// How it is retried.
    pub retry_policy: RetryPolicy,
    /// How long one run may take.
    pub timeout_millis: u64,
    /// The submitter's own labels.
    pub metadata: BTreeMap<String, String>,
    /// The schedule that created it.
    pub schedule_id: Option<ScheduleId>,
    /// The submitter's idempotency key, to show it.
    pub idempotency_key: Option<String>,
    /// The tasks of its tenant with the same key run one at a time, by `execute_at`, then in order
    /// of submission.
    pub ordering_key: Option<String>,
    /// At most `max_per_key` tasks of its queue with the same key run at a time.
    pub concurrency_key: Option<String>,
    /// The tasks that must finish before it may run.
    pub dependencies: Dependencies,
}

/// The tasks that a task waits for, and its policy if one of them does not complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependencies {
    /// Their ids, each once; tasks of the same tenant.
    pub ids: Vec<TaskId>,
    /// The policy if one of them does not complete.
    pub on_failure: OnDependencyFailure,
}

/// What happens to a task when one of its dependencies does not complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDependencyFailure {
    /// It is `CANCELLED`.
    #[default]
    Cancel,
    /// It runs anyway.
    Run,
    /// It is `FAILED`.
    Fail,
}

impl OnDependencyFailure {
    /// The name on the wire and in the store's column.
    pub const fn as_str(self) -> &'static str {
        match self {
            OnDependencyFailure::Cancel => "cancel",
            OnDependencyFailure::Run => "run",
            OnDependencyFailure::Fail => "fail",
        }
    }

    /// The policy with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Cancel, Self::Run, Self::Fail].into_iter().find(|policy| policy.as_str() == name)
    }
}

/// Where a task is pushed to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// The URL, canonical.
    pub url: String,
    /// Extra request headers.
    pub headers: BTreeMap<String, String>,
    /// What the body of the request is.
    #[serde(default)]
    pub body: CallbackBody,
}

/// What the body of a webhook's request is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackBody {
    /// The payload, as it was submitted.
    #[default]
    Payload,
    /// An object with the task, its run and the results of its dependencies beside the payload.
    Envelope,
}

impl CallbackBody {
    /// The name on the wire and in the store's column.
    pub const fn as_str(self) -> &'static str {
        match self {
            CallbackBody::Payload => "payload",
            CallbackBody::Envelope => "envelope",
        }
    }

    /// The body with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Payload, Self::Envelope].into_iter().find(|body| body.as_str() == name)
    }
}

/// Who holds a task, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The worker, or the node that dispatches it.
    pub worker: String,
    /// The process that must be alive for the hold to be valid; none for pull workers, which
    /// outlive our nodes.
    pub node: Option<NodeId>,
    /// When the hold began.
    pub since: Timestamp,
    /// The task is taken back if no heartbeat came by then.
    pub expires_at: Timestamp,
    /// No heartbeat extends the hold past this.
    pub deadline_at: Timestamp,
    /// By how much a heartbeat extends it.
    pub lease_millis: u64,
}

/// An edit of a task that has not started. None keeps a field.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    /// A new time.
    pub execute_at: Option<Timestamp>,
    /// A new payload.
    pub payload: Option<Json>,
    /// A new priority.
    pub priority: Option<u8>,
    /// A new retry policy.
    pub retry_policy: Option<RetryPolicy>,
    /// A new expiry; `Some(None)` removes it.
    pub expires_at: Option<Option<Timestamp>>,
    /// Labels that replace the old ones.
    pub metadata: Option<BTreeMap<String, String>>,
    /// Another queue.
    pub queue: Option<String>,
    /// Where it goes instead.
    pub destination: Option<Destination>,
    /// How long one run may take.
    pub timeout_millis: Option<u64>,
    /// Another ordering key.
    pub ordering_key: Option<OrderingKeyEdit>,
}

/// Where a task goes: its route, and the callback of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The executor that takes it.
    pub route: Route,
    /// What it calls, if it is a webhook.
    pub callback: Option<Callback>,
}

/// An edit of the ordering key. The store notes that the turns of both keys may pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderingKeyEdit {
    /// The key that the task has at the version of the edit.
    pub from: Option<String>,
    /// The key that it gets.
    pub to: Option<String>,
}

impl Edit {
    /// Whether it moves the task to lanes that it could not reach by its priority alone.
    pub fn moves(&self) -> bool {
        self.queue.is_some() || self.destination.is_some()
    }

    /// The lane of the task afterwards, if that may be another.
    pub fn lane(&self, now: &LaneKey) -> Option<LaneKey> {
        if self.priority.is_none() && !self.moves() {
            return None;
        }
        let mut lane = now.clone();
        lane.priority = self.priority.unwrap_or(lane.priority);
        if let Some(queue) = &self.queue {
            lane.queue.clone_from(queue);
        }
        if let Some(destination) = &self.destination {
            lane.route.clone_from(&destination.route);
        }
        Some(lane)
    }
}

/// A task as the store has it.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// The lane it is in: tenant, queue, type, priority, route.
    pub lane: Arc<Lane>,
    /// Its state, version and attempts.
    pub position: Position,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When its submitter wants it to run.
    pub execute_at: Timestamp,
    /// When it is due next: `execute_at`, or later because of its queue's jitter, its dependencies
    /// or a failed attempt.
    pub due_at: Timestamp,
    /// It fails if it has not started by then.
    pub expires_at: Option<Timestamp>,
    /// Who holds it now.
    pub hold: Option<Hold>,
    /// Who ran it last.
    pub worker: Option<String>,
    /// When the last run began.
    pub started_at: Option<Timestamp>,
    /// When it finished.
    pub completed_at: Option<Timestamp>,
    /// The result of the run.
    pub result: Option<Json>,
    /// The progress that the worker reported.
    pub progress: Option<Json>,
    /// What the next attempt can resume from.
    pub checkpoint: Option<Json>,
    /// The rest of what was submitted.
    pub body: Body,
    /// Every step so far.
    pub trail: Trail,
}

impl Task {
    /// The task that a submission makes in `state`: at version 1, never claimed. A borrowed
    /// submission is copied, an owned one is moved.
    pub fn created(new: Cow<'_, NewTask>, lane: Arc<Lane>, state: State) -> Self {
        debug_assert!(matches!(state, State::Blocked | State::Pending), "a new task waits");
        let NewTask { id, created_at, execute_at, due_at, expires_at, .. } = *new;
        let (body, trail) = match new {
            Cow::Borrowed(new) => (new.body.clone(), new.trail.clone()),
            Cow::Owned(new) => (new.body, new.trail),
        };
        Self {
            id,
            lane,
            position: Position { state, version: 1, attempts: 0, crashes: 0, cancel_requested: false },
            created_at,
            execute_at,
            due_at,
            expires_at,
            hold: None,
            worker: None,
            started_at: None,
            completed_at: None,
            result: None,
            progress: None,
            checkpoint: None,
            body,
            trail,
        }
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.position.state
    }

    /// The approximate size in bytes of a response that shows it, without its history.
    pub fn bytes(&self) -> usize {
        let of = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.get().len());
        let given = [&self.result, &self.progress, &self.checkpoint].into_iter().map(of).sum::<usize>();
        let labels = self.body.metadata.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
        512 + given + labels + self.body.payload.get().len() + self.body.dependencies.ids.len() * 48
    }

    /// Its tenant.
    pub fn tenant(&self) -> &str {
        &self.lane.key.tenant
    }

    /// The instant that it was made for, if a schedule created it.
    pub fn scheduled_for(&self) -> Option<Timestamp> {
        // Most tasks belong to no schedule, and their trails are not read for it.
        self.body.schedule_id.and_then(|_| self.trail.scheduled_for())
    }

    /// When it was asked to stop, if it was while it ran.
    pub fn cancel_requested_at(&self) -> Option<Timestamp> {
        // Nothing but its end follows the request, so only these tasks can have one.
        let may_have = self.position.cancel_requested || self.position.state == State::Cancelled;
        let asked = |entry: Entry<'_>| (entry.step == Step::CancelRequested).then_some(entry.at);
        if may_have { self.trail.entries().filter_map(asked).last() } else { None }
    }

    /// Retries used so far: attempts beyond the first, including the one it waits for.
    pub fn retry_count(&self) -> u32 {
        let attempts = self.position.attempts;
        if self.position.state == State::Pending { attempts } else { attempts.saturating_sub(1) }
    }

    /// The worker that runs it, or ran it last.
    pub fn worker_id(&self) -> Option<&str> {
        let holder = self.hold.as_ref().filter(|_| self.position.state == State::Running);
        holder.map(|hold| hold.worker.as_str()).or(self.worker.as_deref())
    }

    /// Whether it has expired: no run may start any more, neither the first nor a retry.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }

    /// When it changed last.
    pub fn updated_at(&self) -> Timestamp {
        self.trail.last().map_or(self.created_at, |entry| entry.at)
    }
}
