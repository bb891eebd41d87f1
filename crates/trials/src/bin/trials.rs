//! The long forms of the trials, which take minutes; the short ones are tests of this crate.
//!
//! ```text
//! cargo build --release
//! cargo run -p punctual-trials -- kills --cycles 200 --program target/release/punctual
//! ```
//!
//! Prints the seed first: with `--seed` the same dice fall again. Ends with 0 if no law was broken; otherwise the
//! history is left behind as JSON lines, and its path is printed.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use punctual_trials::kill::{self, Plan};
use punctual_trials::workload::Load;

/// Tries to break a server, and checks from outside whether it did.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    trial: Trial,
}

#[derive(Subcommand)]
enum Trial {
    /// `kill -9` under load, again and again.
    Kills {
        /// How often.
        #[arg(long, default_value_t = 200)]
        cycles: usize,
        /// What the dice begin with; drawn if absent.
        #[arg(long)]
        seed: Option<u64>,
        /// The server's program.
        #[arg(long, default_value = "target/debug/punctual")]
        program: PathBuf,
        /// Where a history with a violation in it is left.
        #[arg(long, default_value = ".")]
        histories: PathBuf,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let Trial::Kills { cycles, seed, program, histories } = Cli::parse().trial;
    let seed = seed.unwrap_or_else(|| rand::random_range(0..1_000_000));
    println!("seed {seed}");
    let drain = Duration::from_mins(2);
    let plan = Plan { program, bug: None, cycles, seed, load: Load::USUAL, drain, histories };
    let report = kill::run(&plan, |done| {
        if done % 10 == 0 {
            println!("{done} of {cycles} cycles");
        }
    })
    .await;
    println!("{report}");
    if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
