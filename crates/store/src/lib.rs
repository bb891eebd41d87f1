//! The durable stores of Punctual: adapters of the ports in `punctual_core`.
//!
//! [`sqlite`] is the embedded one, [`postgres`] the one that many nodes share;
//! [`migrations`] brings their databases to the schema that this binary knows. Only the
//! `punctual` binary names this crate.

mod apply_kind;
mod batch_parts;
mod beats;
mod blocked_child;
mod claims;
mod columns;
mod connection_counts;
mod dependencies;
mod effects;
mod forecast_tally;
mod found_tasks;
mod lane_cache;
mod lane_reclaim;
mod limit_watch;
mod limits;
mod listing;
pub mod migrations;
mod ordering;
mod places;
mod portable;
pub mod postgres;
mod queue_columns;
mod review;
mod revived_child;
mod schedule_columns;
mod sql;
pub mod sqlite;
#[cfg(test)]
mod state_codes;
mod submissions;
mod tally;
mod task_row;
mod weights;
mod write_queue;

pub use connection_counts::ConnectionCounts;
