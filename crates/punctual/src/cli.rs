//! The command line: one file a subcommand. Whatever goes wrong is told on stderr in one sentence.

mod bench;
mod config;
mod flags;
mod migrate;
mod serve;
mod sink;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use punctual_core::store::Store;

use crate::config::Faults;

/// A distributed task scheduler.
#[derive(Parser)]
#[command(name = "punctual", version, about, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server.
    Serve(flags::Flags),
    /// Print the settings in force, or the documented defaults.
    Config(config::Arguments),
    /// Bring the store's schema up to date, take its last step back, or show where it stands.
    Migrate(migrate::Arguments),
    /// Receive webhooks and print them: something to push to while trying things out.
    Sink(sink::Arguments),
    /// Measure a server over HTTP, as its users see it.
    Bench(punctual_bench::Arguments),
}

/// What every call to the store passes through: in the product nothing.
pub type Around = fn(Arc<dyn Store>) -> Arc<dyn Store>;

/// Runs what was typed; a server it starts has its store wrapped in `around`.
pub fn main(around: Around) -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(flags) => serve::run(&flags, around),
        Command::Config(arguments) => config::run(&arguments),
        Command::Migrate(arguments) => migrate::run(&arguments),
        Command::Sink(arguments) => sink::run(&arguments),
        Command::Bench(arguments) => bench::run(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A stderr that is closed is nobody to complain to.
            drop(writeln!(std::io::stderr(), "punctual: {}", sentence(&error)));
            ExitCode::FAILURE
        }
    }
}

/// The error with its causes in one line; faults of the configuration one a line.
fn sentence(error: &anyhow::Error) -> String {
    match error.downcast_ref::<Faults>() {
        Some(faults) => faults.to_string(),
        None => format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" "),
    }
}
