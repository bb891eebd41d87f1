//! The loops that one elected node runs for all: today the reaper. Also the node's own
//! sign of life, which every node gives.

pub mod elector;
pub mod membership;
pub mod reaper;
