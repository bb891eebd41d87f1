//! Decides when a task runs and who takes it: the lanes, the
//! dispatcher, the desk of the pull workers, and the settlement of what they hold.

mod backlog;
mod backlog_rate;
pub mod board;
pub mod breakers;
mod broken;
pub mod cron_call;
pub mod desk;
pub mod dispatcher;
pub mod fairness;
mod gated;
pub mod hints;
pub mod outlook;
pub mod ownership;
pub mod queue_watch;
pub mod resolving;
pub mod settle;
pub mod targets;
mod waiters;
pub mod waking;
pub mod waking_schedules;
