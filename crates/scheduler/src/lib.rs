//! Decides when a task runs and which worker gets it.
//!
//! It has the dispatcher and its lanes, the polls of pull workers, the slots of webhook targets,
//! the partitions of this node, the breakers, and the settlement of leased runs.

mod backlog_rate;
pub mod breakers;
pub mod cron_waker;
pub mod dependency_results;
pub mod dispatch_status;
pub mod dispatcher;
pub mod fairness;
pub mod finish_watch;
pub mod hints;
mod lanes;
pub mod notifying_store;
pub mod ownership;
pub mod polls;
pub mod queue_watch;
pub mod resolver_loop;
pub mod settle;
pub mod targets;
mod waiting_polls;
pub mod webhook_path;
