//! The loops that one elected node runs for all: the reaper, cron, the pruner, and bulk operations.
//!
//! Also the election itself, the presence that every node records, and the watch for nodes that are
//! gone.

pub mod bulk;
pub mod cron;
pub mod departures;
pub mod elector;
pub mod membership;
pub mod pruner;
pub mod reaper;
