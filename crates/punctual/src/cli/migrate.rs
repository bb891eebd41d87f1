//! `punctual migrate`: moves the store's schema by hand, while no server runs on it. `serve` goes up by itself.

use std::io::Write;

use anyhow::ensure;
use clap::{Args, Subcommand};
use punctual_core::clock::{Clock, SystemClock};
use punctual_store::sqlite::{Database, Options};

use super::flags::Flags;

/// What `punctual migrate` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    direction: Direction,
}

#[derive(Subcommand)]
enum Direction {
    /// Apply every step that is missing.
    Up(Flags),
    /// Take steps back.
    Down {
        /// The step to go back to [default: the one before the last]. The first step made the tables: 0 takes that back
        /// too and deletes every task, so with tasks in the store it has to be said.
        #[arg(long, value_name = "VERSION")]
        to: Option<u32>,
        #[command(flatten)]
        flags: Flags,
    },
    /// Show every step, and when it was applied.
    Status(Flags),
}

/// Moves the schema, and prints what was done.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    match &arguments.direction {
        Direction::Up(flags) => {
            let applied = Database::open(&flags.load()?.1.data, &Options::default())?.up(SystemClock.now())?;
            writeln!(out, "applied: {}", numbers(&applied))?;
        }
        Direction::Down { to, flags } => {
            let mut database = open_existing(flags)?;
            let last =
                database.status()?.iter().filter(|step| step.applied_at.is_some()).map(|step| step.version).max();
            let target = to.unwrap_or(last.unwrap_or(0).saturating_sub(1));
            let deletes = to.is_none() && target == 0 && database.has_tasks();
            ensure!(!deletes, "this would delete every task in the store; say --to 0 if that is what you want");
            let taken_back = database.down(target)?;
            writeln!(out, "taken back: {}", numbers(&taken_back))?;
        }
        Direction::Status(flags) => {
            for step in open_existing(flags)?.status()? {
                let applied = step.applied_at.map_or("not applied".to_owned(), |at| format!("applied {at}"));
                writeln!(out, "{:04} {} {applied}", step.version, step.name)?;
            }
        }
    }
    Ok(())
}

fn open_existing(flags: &Flags) -> anyhow::Result<Database> {
    let (_, config) = flags.load()?;
    ensure!(config.data.is_dir(), "there is no data directory {}", config.data.display());
    Ok(Database::open(&config.data, &Options::default())?)
}

fn numbers(versions: &[u32]) -> String {
    match versions {
        [] => "nothing".to_owned(),
        some => some.iter().map(|version| format!("{version:04}")).collect::<Vec<_>>().join(", "),
    }
}
