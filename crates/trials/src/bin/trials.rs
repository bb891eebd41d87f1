//! The long forms of the trials, which take minutes; the short ones are tests of this crate.
//!
//! ```text
//! cargo build --release
//! cargo run -p punctual-trials -- kills --cycles 200 --program target/release/punctual
//! cargo run -p punctual-trials -- cluster --cycles 100 --program target/release/punctual
//! cargo run -p punctual-trials -- races --rounds 2000 --program target/release/punctual
//! ```
//!
//! Prints the seed first: `--seed` repeats the same random numbers. Exits with 0 if no law was
//! broken; otherwise it leaves the history as JSON lines, and prints its path.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use punctual_trials::cluster::ClusterFault;
use punctual_trials::races::Kind;
use punctual_trials::workload::WorkloadSize;
use punctual_trials::{cluster, kill, races};

/// Tries to break a server, and checks from outside whether it broke.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    trial: TrialCommand,
}

#[derive(Subcommand)]
enum TrialCommand {
    /// Kills a server under load with `kill -9`, many times.
    Kills {
        /// The number of kills.
        #[arg(long, default_value_t = 200)]
        cycles: usize,
        #[command(flatten)]
        common: Common,
    },
    /// Three nodes on one `PostgreSQL`, with one fault after the other.
    Cluster {
        /// The number of faults.
        #[arg(long, default_value_t = 100)]
        cycles: usize,
        /// How long a node or the database is frozen, in seconds.
        #[arg(long, default_value_t = 6)]
        freeze: u64,
        /// Only these faults, in this order.
        #[arg(long, value_name = "FAULT", value_parser = fault)]
        only: Vec<ClusterFault>,
        #[command(flatten)]
        common: Common,
    },
    /// Callers that compete at the same instant, of which only one can win.
    Races {
        /// The number of rounds of each kind.
        #[arg(long, default_value_t = 2_000)]
        rounds: usize,
        /// Only these kinds.
        #[arg(long, value_name = "KIND", value_parser = kind)]
        only: Vec<Kind>,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(Args)]
struct Common {
    /// The seed of the random numbers; drawn if absent.
    #[arg(long)]
    seed: Option<u64>,
    /// The server's program.
    #[arg(long, default_value = "target/debug/punctual")]
    program: PathBuf,
    /// The directory for histories that break a law.
    #[arg(long, default_value = ".")]
    histories: PathBuf,
}

fn kind(name: &str) -> Result<Kind, String> {
    let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    Kind::named(name).ok_or_else(|| format!("one of {}", names.join(", ")))
}

fn fault(name: &str) -> Result<ClusterFault, String> {
    let names: Vec<&str> = ClusterFault::ALL.iter().map(|fault| fault.name()).collect();
    ClusterFault::named(name).ok_or_else(|| format!("one of {}", names.join(", ")))
}

#[tokio::main]
async fn main() -> ExitCode {
    let clean = match Cli::parse().trial {
        TrialCommand::Kills { cycles, common } => kills(cycles, common).await,
        TrialCommand::Cluster { cycles, freeze, only, common } => {
            clusters(cycles, Duration::from_secs(freeze), &only, common).await
        }
        TrialCommand::Races { rounds, only, common } => {
            let kinds = if only.is_empty() { Kind::ALL.to_vec() } else { only };
            all_races(rounds, &kinds, common).await
        }
    };
    if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Common {
    fn seed(&self) -> u64 {
        let seed = self.seed.unwrap_or_else(|| rand::random_range(0..1_000_000));
        println!("seed {seed}");
        seed
    }
}

async fn kills(cycles: usize, common: Common) -> bool {
    let (seed, drain) = (common.seed(), Duration::from_mins(2));
    let Common { program, histories, .. } = common;
    let plan = kill::KillPlan { program, bug: None, cycles, seed, load: WorkloadSize::USUAL, drain, histories };
    let report = kill::run(&plan, |done| {
        if done % 10 == 0 {
            println!("{done} of {cycles} cycles");
        }
    })
    .await;
    println!("{report}");
    report.is_clean()
}

async fn clusters(cycles: usize, freeze: Duration, only: &[ClusterFault], common: Common) -> bool {
    let (seed, drain) = (common.seed(), Duration::from_mins(2));
    let Common { program, histories, .. } = common;
    let faults = only.iter().copied().cycle().take(cycles).collect();
    let plan = cluster::ClusterPlan {
        program,
        bug: None,
        faults,
        cycles,
        seed,
        load: WorkloadSize::USUAL,
        freeze,
        drain,
        histories,
    };
    let report = cluster::run(&plan, |done| {
        if done % 10 == 0 {
            println!("{done} of {cycles} faults");
        }
    })
    .await;
    println!("{report}");
    report.is_clean()
}

async fn all_races(rounds: usize, kinds: &[Kind], common: Common) -> bool {
    let seed = common.seed();
    let Common { program, histories, .. } = common;
    let plan = races::RacePlan { program, bug: None, rounds, seed, histories };
    let mut clean = true;
    let mut table = Vec::new();
    for (number, kind) in kinds.iter().enumerate() {
        println!("\n{} of {}: {}", number + 1, kinds.len(), kind.name());
        let report = races::run(&plan, *kind, move |held| {
            if held % 500 == 0 {
                println!("{held} of {rounds} rounds");
            }
        })
        .await;
        println!("{report}");
        table.push(report.line());
        // A race that only one side ever wins proves nothing.
        clean &= report.is_clean() && report.missing().is_empty();
    }
    println!("\n{} kinds, seed {seed}\n{}", kinds.len(), table.join("\n"));
    clean
}
