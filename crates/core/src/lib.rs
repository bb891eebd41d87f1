//! The domain of Punctual and the ports to the outside world.
//!
//! Everything here is pure: no I/O, no runtime, no clock of its own. Adapters
//! (stores, brokers) implement the traits in [`store`], [`broker`] and
//! [`coordinator`]; services (scheduler, worker, leader, api) call them. Only the
//! `punctual` binary knows both sides.

pub mod backoff;
pub mod breakers;
pub mod broker;
pub mod callback;
pub mod clock;
pub mod condition;
pub mod coordinator;
pub mod forecast;
pub mod ids;
pub mod json;
pub mod lane;
pub mod networks;
pub mod obstacles;
pub mod partitions;
pub mod queues;
pub mod resolver;
pub mod retention;
pub mod retry;
pub mod schedule;
pub mod schedules;
pub mod state;
pub mod store;
pub mod task;
pub mod time;
pub mod trail;
pub mod workers;
