//! `punctual migrate`: migrates the store by hand, while no server runs on it. `serve` applies
//! missing steps by itself.

use std::io::Write;

use anyhow::ensure;
use clap::{Args, Subcommand};
use punctual_core::clock::{Clock, SystemClock};
use punctual_store::migrations::{SchemaStatus, numbers};
use punctual_store::{postgres, sqlite};

use super::flags::{Flags, hide_unless_about_store};
use crate::config::StoreChoice;

/// The arguments of `punctual migrate`.
#[derive(Args)]
pub struct MigrateArguments {
    #[command(subcommand)]
    direction: Direction,
}

#[derive(Subcommand)]
enum Direction {
    /// Apply every missing step.
    #[command(mut_args(hide_unless_about_store))]
    Up(Flags),
    /// Revert steps.
    #[command(mut_args(hide_unless_about_store))]
    Down {
        /// The step to go back to [default: the one before the last]. 0 reverts the first step too,
        /// which created the tables, and deletes every task. So it must be given if the store has
        /// tasks.
        #[arg(long, value_name = "VERSION")]
        to: Option<u32>,
        #[command(flatten)]
        flags: Flags,
    },
    /// Show every step, and when it was applied.
    #[command(mut_args(hide_unless_about_store))]
    Status(Flags),
}

/// The migrations of either store.
enum StoreMigrator {
    Sqlite(sqlite::Migrator),
    Postgres(postgres::Migrator),
}

impl StoreMigrator {
    /// Opens the store. `create` makes an embedded one that is missing.
    async fn open(flags: &Flags, create: bool) -> anyhow::Result<Self> {
        let (_, config) = flags.load()?;
        match &config.store {
            StoreChoice::Postgres(url) => Ok(Self::Postgres(postgres::Migrator::connect(url.expose()).await?)),
            StoreChoice::Sqlite => {
                let exists = create || config.data.is_dir();
                ensure!(exists, "there is no data directory {}", config.data.display());
                Ok(Self::Sqlite(sqlite::Migrator::open(&config.data, &sqlite::Options::default())?))
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

    async fn status(&self) -> anyhow::Result<SchemaStatus> {
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

/// Migrates the schema, and prints what was done.
pub fn run(arguments: &MigrateArguments) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(migrate(arguments))
}

async fn migrate(arguments: &MigrateArguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    match &arguments.direction {
        Direction::Up(flags) => {
            let applied = StoreMigrator::open(flags, true).await?.up().await?;
            writeln!(out, "applied: {}", numbers(&applied))?;
        }
        Direction::Down { to, flags } => {
            let mut database = StoreMigrator::open(flags, false).await?;
            let status = database.status().await?;
            let last = status.steps.iter().filter(|step| step.applied_at.is_some()).map(|step| step.version).max();
            let target = to.unwrap_or(last.unwrap_or(0).saturating_sub(1));
            let deletes = to.is_none() && target == 0 && database.has_tasks().await;
            ensure!(!deletes, "this would delete every task in the store; pass --to 0 if that is what you want");
            let reverted = database.down(target).await?;
            writeln!(out, "taken back: {}", numbers(&reverted))?;
        }
        Direction::Status(flags) => {
            let status = StoreMigrator::open(flags, false).await?.status().await?;
            for step in &status.steps {
                let applied = step.applied_at.map_or("not applied".to_owned(), |at| format!("applied {at}"));
                writeln!(out, "{:04} {} {applied}", step.version, step.name)?;
            }
            if status.is_newer() {
                let version = status.version;
                writeln!(
                    out,
                    "the database is at version {version}, which this binary does not know: use a newer one"
                )?;
            }
        }
    }
    Ok(())
}
