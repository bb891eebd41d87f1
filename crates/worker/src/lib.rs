//! The worker role: receives the messages of the dispatcher, calls webhooks, and settles the runs.
//!
//! A run passes these modules. [`consumer`] receives its message and starts the run in the store.
//! `executor` has [`webhook`] call the target, if [`guard`] allows it. [`answer`] judges the
//! answer, and `settler` writes the outcome, in batches.

pub mod answer;
pub mod consumer;
mod executor;
mod fault;
mod give_back;
pub mod guard;
mod request;
mod retry;
pub mod retry_after;
mod settler;
mod slots;
pub mod stats;
pub mod webhook;

pub use consumer::{Config, Consumer, Deps, Report};
pub use stats::WorkerStats;
pub use webhook::{WebhookConfig, Webhooks};
