//! The durable stores of Punctual: adapters of the ports in `punctual_core`.
//!
//! [`sqlite`] is the embedded one; [`migrations`] brings its database to the schema that
//! this binary knows. Only the `punctual` binary names this crate.

pub mod migrations;
pub mod sqlite;
