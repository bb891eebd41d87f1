//! Numbered, reversible migrations: what those of both databases have in common.
//!
//! Each is a pair of SQL files, built into the binary. What was applied is recorded in
//! `schema_migrations` with a digest of its text: a database is at a version or it is not.
//! [`sqlite`] runs those of the embedded store, [`postgres`] those of PostgreSQL.

pub mod postgres;
pub mod sqlite;

use punctual_core::time::Timestamp;
use sha2::{Digest, Sha256};

/// One step of the schema.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Its number, from 1 without gaps.
    pub version: u32,
    /// What it is about.
    pub name: &'static str,
    up: &'static str,
    down: &'static str,
}

/// One line of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The step's number.
    pub version: u32,
    /// What it is about.
    pub name: &'static str,
    /// When it was applied; none if it was not.
    pub applied_at: Option<Timestamp>,
}

/// Why a database was not migrated.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A newer binary has been here.
    #[error(
        "the database has schema version {found}, but this binary knows versions up to {known}: use a newer binary"
    )]
    Newer {
        /// The version of the database.
        found: u32,
        /// The last version of this binary.
        known: u32,
    },
    /// What was applied is not what this binary would have applied.
    #[error("migration {version} ({name}) was applied to the database with another content than this binary has")]
    Changed {
        /// The step's number.
        version: u32,
        /// What it is about.
        name: &'static str,
    },
    /// There is no such version to go down to.
    #[error("there is no schema version {0} to go down to")]
    NoSuchVersion(u32),
    /// The embedded database did not do it.
    #[error("migration failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL did not do it.
    #[error("migration failed: {0}")]
    Postgres(String),
}

/// A step that was applied, as the database has it.
struct Applied {
    version: u32,
    checksum: String,
    at: Timestamp,
}

/// When the steps were applied, if they are the first so many of those that we know.
fn check(applied: Vec<Applied>, steps: &[Migration]) -> Result<Vec<Timestamp>, MigrationError> {
    let known = u32::try_from(steps.len()).expect("invariant: there are few migrations");
    if let Some(found) = applied.iter().map(|step| step.version).max().filter(|found| *found > known) {
        return Err(MigrationError::Newer { found, known });
    }
    let mut instants = Vec::with_capacity(applied.len());
    for (applied, step) in applied.into_iter().zip(steps) {
        if applied.version != step.version || applied.checksum != step.checksum() {
            return Err(MigrationError::Changed { version: step.version, name: step.name });
        }
        instants.push(applied.at);
    }
    Ok(instants)
}

/// The steps above `to` among the first `done`, the last first.
fn above(steps: &[Migration], done: usize, to: u32) -> Result<impl Iterator<Item = &Migration>, MigrationError> {
    let keep = usize::try_from(to).unwrap_or(usize::MAX);
    if keep > steps.len() {
        return Err(MigrationError::NoSuchVersion(to));
    }
    Ok(steps[..done].iter().skip(keep).rev())
}

/// A line for each step that we know.
fn lines(steps: &[Migration], applied: Vec<Timestamp>) -> Vec<Status> {
    let mut applied = applied.into_iter();
    let line = |step: &Migration| Status { version: step.version, name: step.name, applied_at: applied.next() };
    steps.iter().map(line).collect()
}

impl Migration {
    fn checksum(&self) -> String {
        let mut digest = Sha256::new();
        digest.update(self.up);
        digest.update([0]);
        digest.update(self.down);
        hex::encode(digest.finalize())
    }
}
