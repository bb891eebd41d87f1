//! The loops that one elected node runs for all: the reaper, cron and the pruner.
//!
//! Also the election itself, and the presence that every node records.

pub mod cron;
pub mod elector;
pub mod membership;
pub mod pruner;
pub mod reaper;
