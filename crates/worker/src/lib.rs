//! The worker role: takes what the dispatcher published, calls webhooks, and settles
//! what came of it.
//!
//! A delivery's way: [`consumer`] receives it and begins the run in the store,
//! [`executor`] has [`webhook`] call the target ([`guard`] decides whether it may),
//! [`outcome`] makes an event of the answer, and [`settle`] writes it, in batches.

pub mod consumer;
pub mod executor;
mod fault;
mod give_back;
pub mod guard;
pub mod outcome;
mod request;
mod retry;
pub mod retry_after;
pub mod settle;
pub mod stats;
pub mod webhook;

pub use consumer::{Config, Consumer, Deps, Report};
pub use stats::{Ended, WorkerStats};
pub use webhook::{Signer, WebhookConfig, Webhooks};
