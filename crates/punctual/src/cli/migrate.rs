//! `punctual migrate`: moves the store's schema by hand, while no server runs on it. `serve` goes up by itself.

use std::io::Write;

use anyhow::ensure;
use clap::{Args, Subcommand};
use punctual_core::clock::{Clock, SystemClock};
use punctual_store::migrations::{Standing, numbers};
use punctual_store::{postgres, sqlite};

use super::flags::OfStore;
use crate::config::StoreChoice;

/// What `punctual migrate` takes.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    direction: Direction,
}

#[derive(Subcommand)]
enum Direction {
    /// Apply every step that is missing.
    Up(OfStore),
    /// Take steps back.
    Down {
        /// The step to go back to [default: the one before the last]. The first step made the tables: 0 takes that back
        /// too and deletes every task, so with tasks in the store it has to be said.
        #[arg(long, value_name = "VERSION")]
        to: Option<u32>,
        #[command(flatten)]
        flags: OfStore,
    },
    /// Show every step, and when it was applied.
    Status(OfStore),
}

/// The database of a store, open for migrations.
enum Database {
    Sqlite(sqlite::Database),
    Postgres(postgres::Database),
}

impl Database {
    /// Opens it; an embedded one that is not there is made only `if_missing`.
    async fn open(flags: &OfStore, if_missing: bool) -> anyhow::Result<Self> {
        let (_, config) = flags.0.load()?;
        match &config.store {
            StoreChoice::Postgres(url) => Ok(Self::Postgres(postgres::Database::connect(url.expose()).await?)),
            StoreChoice::Sqlite => {
                let there = if_missing || config.data.is_dir();
                ensure!(there, "there is no data directory {}", config.data.display());
                Ok(Self::Sqlite(sqlite::Database::open(&config.data, &sqlite::Options::default())?))
            }
        }
    }

    async fn up(&mut self) -> anyhow::Result<Vec<u32>> {
        match self {
            Self::Sqlite(database) => Ok(database.up(SystemClock.now())?),
            Self::Postgres(database) => Ok(database.up(SystemClock.now()).await?),
        }
    }

    async fn down(&mut self, to: u32) -> anyhow::Result<Vec<u32>> {
        match self {
            Self::Sqlite(database) => Ok(database.down(to)?),
            Self::Postgres(database) => Ok(database.down(to).await?),
        }
    }

    async fn status(&self) -> anyhow::Result<Standing> {
        match self {
            Self::Sqlite(database) => Ok(database.status()?),
            Self::Postgres(database) => Ok(database.status().await?),
        }
    }

    async fn has_tasks(&self) -> bool {
        match self {
            Self::Sqlite(database) => database.has_tasks(),
            Self::Postgres(database) => database.has_tasks().await,
        }
    }
}

/// Moves the schema, and prints what was done.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(migrate(arguments))
}

async fn migrate(arguments: &Arguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    match &arguments.direction {
        Direction::Up(flags) => {
            let applied = Database::open(flags, true).await?.up().await?;
            writeln!(out, "applied: {}", numbers(&applied))?;
        }
        Direction::Down { to, flags } => {
            let mut database = Database::open(flags, false).await?;
            let standing = database.status().await?;
            let last = standing.steps.iter().filter(|step| step.applied_at.is_some()).map(|step| step.version).max();
            let target = to.unwrap_or(last.unwrap_or(0).saturating_sub(1));
            let deletes = to.is_none() && target == 0 && database.has_tasks().await;
            ensure!(!deletes, "this would delete every task in the store; say --to 0 if that is what you want");
            let taken_back = database.down(target).await?;
            writeln!(out, "taken back: {}", numbers(&taken_back))?;
        }
        Direction::Status(flags) => {
            let standing = Database::open(flags, false).await?.status().await?;
            for step in &standing.steps {
                let applied = step.applied_at.map_or("not applied".to_owned(), |at| format!("applied {at}"));
                writeln!(out, "{:04} {} {applied}", step.version, step.name)?;
            }
            if standing.is_newer() {
                let version = standing.version;
                writeln!(
                    out,
                    "the database is at version {version}, which this binary does not know: use a newer one"
                )?;
            }
        }
    }
    Ok(())
}
