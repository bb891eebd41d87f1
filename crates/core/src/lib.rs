//! The domain of Punctual and the ports to the outside world.
//!
//! Everything here is pure: no I/O, no runtime, no clock of its own. A store implements the ports
//! that [`database`] names, a broker the one in [`broker`]. The services (scheduler, worker,
//! leader, api) call the ports. Only the `punctual` binary knows both sides.

pub mod backoff;
pub mod breakers;
pub mod broker;
pub mod bulk;
pub mod callback;
mod civil;
pub mod clock;
pub mod condition;
pub mod coordinator;
pub mod cron;
pub mod database;
pub mod failure;
pub mod forecast;
pub mod ids;
pub mod insight;
pub mod json;
pub mod lane;
pub mod name_pattern;
pub mod networks;
pub mod obstacles;
pub mod partitions;
pub mod queues;
pub mod registry;
pub mod retry;
pub mod run_end;
pub mod schedules;
pub mod state;
pub mod store;
pub mod task;
pub mod tenants;
pub mod time;
pub mod trail;
pub mod upkeep;
pub mod webhook_secrets;
