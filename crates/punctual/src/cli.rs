//! The command line, with one file per subcommand. An error is printed on stderr in one sentence.

mod bench;
mod config;
mod flags;
mod init;
mod migrate;
mod serve;
mod sink;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand};
use punctual_core::store::Store;

use crate::config::SettingFaults;

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
    /// Make the first admin key in the store, and print it.
    #[command(mut_args(init::hide_others))]
    Init(init::InitArguments),
    /// Print the settings in force, or the documented defaults.
    Config(config::ConfigArguments),
    /// Bring the store's schema up to date, revert its last step, or show its status.
    Migrate(migrate::MigrateArguments),
    /// Receive webhooks and print them, to try things out.
    Sink(sink::SinkArguments),
    /// Measure a server over HTTP, as its users see it.
    Bench(punctual_bench::BenchArguments),
}

/// Wraps the store: with nothing in the product, with faults in the trials.
pub type StoreWrapper = fn(Arc<dyn Store>) -> Arc<dyn Store>;

/// Runs the command line. A server that it starts has its store wrapped by `wrap_store`.
pub fn main(wrap_store: StoreWrapper) -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(flags) => serve::run(&flags, wrap_store),
        Command::Init(arguments) => init::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Migrate(arguments) => migrate::run(&arguments),
        Command::Sink(arguments) => sink::run(&arguments),
        Command::Bench(arguments) => bench::run(arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If stderr is closed there is no other place for the error.
            drop(writeln!(std::io::stderr(), "punctual: {}", sentence(&error)));
            ExitCode::FAILURE
        }
    }
}

/// Chooses the implementation of TLS for this process.
pub(crate) fn install_tls() {
    // Fails only if it was called before, which is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
}

/// The error with its causes on one line; faults of the settings on one line each.
fn sentence(error: &anyhow::Error) -> String {
    match error.downcast_ref::<SettingFaults>() {
        Some(faults) => faults.to_string(),
        None => format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" "),
    }
}
