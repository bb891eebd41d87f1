//! The rules of submission: they check a request and make a task or a schedule of it.
//!
//! Three callers share them: the API for requests, the leader's cron loop for occurrences of
//! schedules, and the inbox for submissions by SQL. The crate knows neither HTTP nor a store; only
//! [`occurrences`] calls a port, to stop the tasks that a new occurrence replaces.
//!
//! Invariant: every fault of a submission is reported at once, each with a JSON pointer, and a task
//! that passes satisfies every bound of `core::task::limits`.

mod batch_context;
pub mod batch_members;
mod callback;
mod error;
mod factory;
pub mod fields;
mod fingerprint;
pub mod idempotency_key;
pub mod occurrences;
pub mod patch;
mod queue_defaults;
mod queue_settings;
mod retry_policy;
mod rules;
mod schedule;
mod task;

pub use batch_context::BatchContext;
pub use error::{ErrorCode, SubmissionError, pointer_token};
pub use factory::{Firing, TaskFactory};
pub use fields::Faults;
pub use queue_defaults::keep_order;
pub use rules::{QueueCache, SubmissionRules};
pub use schedule::{CheckedSchedule, ScheduleValidator};
pub use task::{DEFAULT_QUEUE, TaskValidator};
