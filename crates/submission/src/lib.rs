//! The rules of submission: they read and check a request, and make a task or a schedule of it.
//!
//! Three callers share them: the API for requests, the leader's cron loop for occurrences of
//! schedules, and the inbox for submissions by SQL. The crate knows neither HTTP nor a store; only
//! [`occurrences`] calls a port, to stop the tasks that a new occurrence replaces.
//!
//! Invariant: every fault of a submission is reported at once, those of its shape and those of its
//! values, each with a JSON pointer; and a task that passes satisfies every bound of
//! `core::task::limits`.

mod batch_context;
pub mod batch_members;
mod callback;
mod error;
mod factory;
mod faults;
pub mod fields;
mod fingerprint;
pub mod idempotency_key;
mod nearest;
pub mod occurrences;
pub mod patch;
mod queue_defaults;
mod queue_settings;
pub mod reading;
mod retry_policy;
mod rules;
mod schedule;
mod sent;
mod task;

pub use batch_context::BatchContext;
pub use error::{ErrorCode, SubmissionError, pointer_token};
pub use factory::{Firing, TaskFactory};
pub use faults::{Faults, ITEMS_MAX, LISTED_MAX};
pub use nearest::{did_you_mean, nearest};
pub use queue_defaults::keep_order;
pub use rules::{QueueCache, SubmissionRules};
pub use schedule::{CheckedSchedule, ScheduleValidator};
pub use sent::Sent;
pub use task::{DEFAULT_QUEUE, TaskValidator};
