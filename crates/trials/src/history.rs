//! The observations of actors outside of the server: the only input of the checker.
//!
//! Every trial creates a [`Recorder`], gives it to its actors, and gets a [`History`] in the end:
//!
//! ```
//! use punctual_trials::history::{Op, Recorder, Shown};
//! # let task = punctual_core::ids::TaskId::new();
//! let recorder = Recorder::new();
//! let call = recorder.invoke(Op::Cancel { task });
//! // … the request is sent, and answered …
//! call.ok(Shown { status: 200, task: Some(task), ..Shown::default() });
//! assert_eq!(recorder.finish(Vec::new()).calls().count(), 1);
//! ```
//!
//! A call that is dropped without an answer is [`CallAnswer::Unknown`]: it may have happened or
//! not, and the checker allows for both. Stamps come from one clock that never goes back and
//! follows the wall clock. So they order what happened in this process, and can be compared with
//! the server's instants to within [`CLOCK_ERROR_MILLIS`].
//!
//! Invariant: a history holds nothing that only the server knows, except its final testimony
//! ([`Dumped`], [`Scheduled`]). The trial's own view of the database ([`Witness`]) serves to check
//! that testimony.

use std::collections::BTreeMap;

use punctual_core::ids::TaskId;
use punctual_core::task::OnDependencyFailure;
use punctual_core::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

mod dump;
mod recorder;
mod scheduled;
mod witness;

pub use dump::{Dumped, RecordedRun, TrailStep};
pub use recorder::{OpenCall, Recorder};
pub use scheduled::{Occurred, Scheduled};
pub use witness::{Term, Witness, WitnessedWrite};

/// How far a stamp may differ from the server's clock on the same machine: both are cut to
/// milliseconds, and the wall clock may be set back a little while a trial runs.
pub const CLOCK_ERROR_MILLIS: i64 = 5;

/// Microseconds since the Unix epoch, by a clock that never goes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp(pub i64);

impl Stamp {
    /// The stamp in whole milliseconds, as the server writes instants.
    pub const fn wall(self) -> Timestamp {
        Timestamp::from_millis(self.0.div_euclid(1_000))
    }

    /// Whether this happened before the server's clock can have shown `at`.
    pub fn surely_before(self, at: Timestamp) -> bool {
        self.0.div_euclid(1_000) + CLOCK_ERROR_MILLIS < at.as_millis()
    }

    /// Whether this happened after the server's clock can have shown `at`, if that clock is behind
    /// by `lag_millis` at most.
    pub fn surely_after(self, at: Timestamp, lag_millis: i64) -> bool {
        self.0.div_euclid(1_000) - CLOCK_ERROR_MILLIS - lag_millis > at.as_millis()
    }
}

/// All events in the order of recording, and the final state of the tasks.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The events.
    pub events: Vec<HistoryEvent>,
    /// Every task, as the API showed it after the drain.
    pub dump: Vec<Dumped>,
    /// What the database saw, if the trial watched it.
    pub witness: Option<Witness>,
    /// How far a server's clock may be behind the true one: it is never ahead of it.
    pub lag_millis: i64,
    /// Queues that were limited before the first submission, and how many of their tasks may be
    /// claimed at once.
    pub limits: BTreeMap<String, usize>,
    /// What the API shows about the schedules of the trial.
    pub schedules: Vec<Scheduled>,
}

impl History {
    /// The calls, in the order of their answers.
    pub fn calls(&self) -> impl Iterator<Item = &RecordedCall> {
        self.events.iter().filter_map(|event| if let HistoryEvent::Call(call) = event { Some(call) } else { None })
    }

    /// The leases that workers got.
    pub fn grants(&self) -> impl Iterator<Item = &Grant> {
        self.events.iter().filter_map(|event| if let HistoryEvent::Grant(grant) = event { Some(grant) } else { None })
    }

    /// The webhooks that arrived.
    pub fn arrivals(&self) -> impl Iterator<Item = &Arrival> {
        self.events
            .iter()
            .filter_map(|event| if let HistoryEvent::Arrival(arrival) = event { Some(arrival) } else { None })
    }

    /// The acts of the nemesis.
    pub fn acts(&self) -> impl Iterator<Item = &Act> {
        self.events.iter().filter_map(|event| if let HistoryEvent::Act(act) = event { Some(act) } else { None })
    }
}

/// An event that an actor outside of the server saw or caused.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum HistoryEvent {
    /// A call and its answer.
    Call(RecordedCall),
    /// A lease that a worker got.
    Grant(Grant),
    /// A webhook that arrived at its target.
    Arrival(Arrival),
    /// Something the nemesis did.
    Act(Act),
}

/// A call to the API: one task of a batch is a call of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedCall {
    /// What was asked for.
    pub op: Op,
    /// Before the request was sent.
    pub invoked: Stamp,
    /// After the answer arrived, or the wait for it ended.
    pub answered: Stamp,
    /// The answer.
    pub answer: CallAnswer,
}

/// What was asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// A task was submitted.
    Submit(Submission),
    /// A task should be cancelled.
    Cancel {
        /// Which.
        task: TaskId,
    },
    /// A task should change: a new time (a reschedule), a new payload, or both.
    Edit {
        /// Which.
        task: TaskId,
        /// The new time.
        due_at: Option<Timestamp>,
        /// The new payload.
        payload: Option<Value>,
        /// Only at this version (`If-Match`).
        if_match: Option<u64>,
    },
    /// A dead letter should be re-driven.
    Redrive {
        /// Which.
        task: TaskId,
    },
    /// A worker reported the outcome of a run, or a heartbeat.
    Settle {
        /// The worker.
        worker: String,
        /// The task.
        task: TaskId,
        /// The fencing token it holds, or once held.
        token: u64,
        /// What it reported.
        report: WorkerReport,
    },
}

impl Op {
    /// What was submitted, if this is a submission.
    pub fn submission(&self) -> Option<&Submission> {
        if let Op::Submit(submission) = self { Some(submission) } else { None }
    }

    /// The task it is about; a submission does not know its task yet.
    pub fn task(&self) -> Option<TaskId> {
        match self {
            Op::Submit(_) => None,
            Op::Cancel { task } | Op::Edit { task, .. } | Op::Redrive { task } | Op::Settle { task, .. } => Some(*task),
        }
    }
}

/// A submitted task, as far as a law needs it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Submission {
    /// The idempotency key; repeated submissions of one task have the same.
    pub key: String,
    /// The queue.
    pub queue: String,
    /// When it is due; none means now.
    pub due_at: Option<Timestamp>,
    /// Not to be started after that.
    pub expires_at: Option<Timestamp>,
    /// The payload.
    pub payload: Value,
    /// Its ordering key.
    pub ordering_key: Option<String>,
    /// What it depends on …
    pub depends_on: Vec<TaskId>,
    /// … and its policy if one of them does not complete.
    pub on_failure: OnDependencyFailure,
}

/// The result that the workers of a trial report: it names the worker.
pub fn result_by(worker: &str, token: u64) -> Value {
    json!({"by": worker, "token": token})
}

/// What a worker reports about a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerReport {
    /// It succeeded.
    Completed,
    /// It failed, and another attempt may succeed.
    Failed,
    /// It failed for good.
    FailedForGood,
    /// The worker gives the task back.
    Released,
    /// A heartbeat: the run continues.
    Heartbeat,
}

/// The answer to a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallAnswer {
    /// 2xx: it is done.
    Ok(Shown),
    /// 4xx: it had no effect.
    Refused {
        /// The status.
        status: u16,
        /// The problem's stable code, or nothing.
        code: String,
    },
    /// No answer, or 5xx: it may have happened or not.
    Unknown,
}

impl CallAnswer {
    /// What a 2xx showed.
    pub fn shown(&self) -> Option<&Shown> {
        if let CallAnswer::Ok(shown) = self { Some(shown) } else { None }
    }

    /// Whether it may have had an effect.
    pub fn may_have_happened(&self) -> bool {
        !matches!(self, CallAnswer::Refused { .. })
    }
}

/// What a 2xx showed of the task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The status: 200, 201 or 202.
    pub status: u16,
    /// The task's id.
    pub task: Option<TaskId>,
    /// The task's state.
    pub state: Option<String>,
    /// The task's version.
    pub version: Option<u64>,
    /// A submission was recognised by its key.
    pub replayed: bool,
    /// The end of the lease, after a heartbeat.
    pub lease_expires_at: Option<Timestamp>,
}

/// A lease that a worker got.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The worker.
    pub worker: String,
    /// The task.
    pub task: TaskId,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The fencing token.
    pub token: u64,
    /// The end of the lease.
    pub expires_at: Timestamp,
    /// The payload of the task.
    pub payload: Value,
    /// When the worker began to ask.
    pub asked: Stamp,
    /// When it had got the lease.
    pub got: Stamp,
}

/// A webhook that arrived at its target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Arrival {
    /// The task.
    pub task: TaskId,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// The fencing token.
    pub token: u64,
    /// The body.
    pub payload: Value,
    /// When its first bytes arrived.
    pub at: Stamp,
}

/// Something the nemesis did.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Act {
    /// What: `kill`, `start`, …
    pub what: String,
    /// When it was done.
    pub at: Stamp,
}
