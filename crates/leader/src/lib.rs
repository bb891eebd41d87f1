//! The loops that one elected node runs for all: the reaper, cron, and what removes what is over.
//! Also the node's own sign of life, which every node gives.

pub mod cron;
pub mod elector;
pub mod membership;
pub mod reaper;
pub mod retention;
