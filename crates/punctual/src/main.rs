//! Punctual: hand it a task and a time; it delivers the task at that time, to a webhook or to a pull worker, and
//! keeps at it until the task is completed or sits in the dead letters with its whole history.
//!
//! This crate is the only one that knows the adapters. `cli` is what a person types, `config` what they set, and
//! `serve` puts the parts together and runs them.

mod cli;
mod config;
mod logging;
mod serve;
mod shutdown;

use std::process::ExitCode;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    cli::main()
}
