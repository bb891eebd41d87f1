//! The worker role: calls webhooks, and settles the runs.
//!
//! The run of a webhook, step by step:
//!
//! | step | where |
//! |---|---|
//! | take a run that the dispatcher's claim has started | [`local`] |
//! | or receive its message from a broker, start it in the store | [`consumer`] |
//! | have the keys of its tenant's secrets | `executor`, `signing` |
//! | call the target, if `punctual_outbound` allows it | `executor`, [`webhook`] |
//! | judge the answer | `executor`, [`answer`] |
//! | settle, in batches | `executor`, `settler` |

pub mod answer;
mod config;
pub mod consumer;
mod executor;
mod fault;
pub mod local;
mod request;
mod retry;
pub mod retry_after;
mod runs;
mod settler;
mod shutdown;
mod signature;
mod signing;
mod slots;
pub mod stats;
pub mod webhook;
mod webhook_urls;

pub use config::{Config, Deps, Report};
pub use consumer::Consumer;
pub use local::WebhookWorker;
pub use signature::SigningKeys;
pub use stats::WorkerStats;
pub use webhook::{WebhookConfig, Webhooks};
