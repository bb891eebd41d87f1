//! The worker role: receives the messages of the dispatcher, calls webhooks, and settles the runs.
//!
//! The run of a webhook, step by step:
//!
//! | step | where |
//! |---|---|
//! | receive its message, start it in the store | [`consumer`] |
//! | call the target, if `guard` allows it | `executor`, [`webhook`] |
//! | judge the answer | `executor`, [`answer`] |
//! | settle, in batches | `executor`, `settler` |

pub mod answer;
pub mod consumer;
mod executor;
mod fault;
mod give_back;
mod guard;
mod lookups;
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
