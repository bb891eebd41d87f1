//! The durable stores of Punctual: adapters of the ports in `punctual_core`.
//!
//! [`sqlite`] is the embedded one, [`postgres`] the one that many nodes share;
//! [`migrations`] brings their databases to the schema that this binary knows. Only the
//! `punctual` binary names this crate.

mod ahead;
mod columns;
mod depending;
mod effects;
mod gating;
mod listing;
pub mod migrations;
mod obstacles;
mod ordering;
pub mod postgres;
mod queue_columns;
mod reviewing;
mod scheduling;
pub mod sqlite;
mod stir;
mod taking;
mod tally;
mod turns;
