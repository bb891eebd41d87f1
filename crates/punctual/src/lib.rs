//! Punctual: hand it a task and a time; it delivers the task at that time, to a webhook or to a
//! pull worker, and keeps at it until the task is completed or sits in the dead letters with its
//! whole history.
//!
//! This crate is the only one that knows the adapters. `cli` is what a person types, `config` what
//! they set, and `serve` puts the parts together and runs them. It is a library so that the trials
//! can run the product on a store with a planted bug, and show that they notice.

pub mod cli;
mod config;
mod logging;
mod serve;
mod shutdown;
