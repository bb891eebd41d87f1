//! Punctual delivers tasks at their times, to webhooks or to pull workers. It retries each until it
//! is completed or a dead letter.
//!
//! This is the only crate that knows the adapters. `cli` is the command line, `config` holds the
//! settings, and `serve` builds and runs a node. It is a library so that the trials can run the
//! product on a store with a planted bug.

pub mod cli;
mod config;
mod logging;
mod serve;
mod shutdown;
