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

/// Where a database stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Every step that this binary knows.
    pub steps: Vec<Status>,
    /// The last step that was applied, which may be one that only a newer binary knows; zero if there is none.
    pub version: u32,
}

impl Standing {
    /// Whether the database has steps that this binary does not know.
    pub fn is_newer(&self) -> bool {
        self.steps.last().is_none_or(|last| self.version > last.version)
    }
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
    #[error(
        "migration {version} ({name}) was applied to the database with another content than this binary has: use the \
         release that applied it, or one that came after that"
    )]
    Changed {
        /// The step's number.
        version: u32,
        /// What it is about.
        name: &'static str,
    },
    /// A step is not recorded, but later ones are.
    #[error(
        "the database has schema version {found}, but no record of migration {version} ({name}), which comes before \
         it: restore the row of schema_migrations from a backup"
    )]
    Missing {
        /// The step's number.
        version: u32,
        /// What it is about.
        name: &'static str,
        /// The version of the database.
        found: u32,
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
    /// Somebody holds a lock that a step needs.
    #[error(
        "migration {version} ({name}) did not get a lock that somebody else holds: see in pg_locks who holds one on a \
         table of the schema punctual, and in pg_stat_activity since when (xact_start), let them end, and try again"
    )]
    Locked {
        /// The step's number.
        version: u32,
        /// What it is about.
        name: &'static str,
    },
    /// The user of the database may not do it.
    #[error("{doing} needs a right that the user of the database lacks, {right}: {reason}")]
    Denied {
        /// What needs it.
        doing: String,
        /// The right.
        right: &'static str,
        /// What PostgreSQL says.
        reason: String,
    },
    /// The server takes no writes.
    #[error("the server is a standby, which is read-only: name the primary")]
    Standby,
    /// Not every text can be kept in the database.
    #[error("the database must be encoded in UTF8, this one is {0}: create one with ENCODING 'UTF8'")]
    Encoding(String),
    /// Some steps were done before one failed.
    #[error("{reason} ({done} before that: {})", numbers(steps))]
    Partly {
        /// What was done with them.
        done: &'static str,
        /// Their numbers.
        steps: Vec<u32>,
        /// Why it did not go on.
        reason: Box<MigrationError>,
    },
}

impl MigrationError {
    /// This, after `steps` were `done`.
    fn after(self, done: &'static str, steps: &[u32]) -> Self {
        match steps {
            [] => self,
            some => Self::Partly { done, steps: some.to_vec(), reason: Box::new(self) },
        }
    }
}

/// Numbers of steps, for people.
pub fn numbers(versions: &[u32]) -> String {
    match versions {
        [] => "nothing".to_owned(),
        some => some.iter().map(|version| format!("{version:04}")).collect::<Vec<_>>().join(", "),
    }
}

/// A step that was applied, as the database has it.
struct Applied {
    version: u32,
    checksum: String,
    at: Timestamp,
}

/// What was applied, if there is nothing in it that a newer binary did.
fn not_newer(applied: Vec<Applied>, steps: &[Migration]) -> Result<Vec<Applied>, MigrationError> {
    let known = u32::try_from(steps.len()).expect("invariant: there are few migrations");
    match applied.iter().map(|step| step.version).max().filter(|found| *found > known) {
        Some(found) => Err(MigrationError::Newer { found, known }),
        None => Ok(applied),
    }
}

/// When the steps that we know were applied, if what was is the first so many of them.
fn instants(applied: Vec<Applied>, steps: &[Migration]) -> Result<Vec<Timestamp>, MigrationError> {
    let mut instants = Vec::with_capacity(applied.len());
    let found = applied.iter().map(|applied| applied.version).max().unwrap_or(0);
    for (applied, step) in applied.into_iter().zip(steps) {
        if applied.version > step.version {
            return Err(MigrationError::Missing { version: step.version, name: step.name, found });
        }
        if applied.version != step.version || applied.checksum != step.checksum() {
            return Err(MigrationError::Changed { version: step.version, name: step.name });
        }
        instants.push(applied.at);
    }
    Ok(instants)
}

/// How many of the steps were applied.
fn count(applied: Vec<Applied>, steps: &[Migration]) -> Result<usize, MigrationError> {
    Ok(instants(not_newer(applied, steps)?, steps)?.len())
}

/// Where a database stands, be it newer than the steps.
fn standing(applied: Vec<Applied>, steps: &[Migration]) -> Result<Standing, MigrationError> {
    let version = applied.iter().map(|step| step.version).max().unwrap_or(0);
    let mut instants = instants(applied, steps)?.into_iter();
    let line = |step: &Migration| Status { version: step.version, name: step.name, applied_at: instants.next() };
    Ok(Standing { steps: steps.iter().map(line).collect(), version })
}

/// The steps above `to` among the first `done`, the last first.
fn above(steps: &[Migration], done: usize, to: u32) -> Result<impl Iterator<Item = &Migration>, MigrationError> {
    let keep = usize::try_from(to).unwrap_or(usize::MAX);
    if keep > steps.len() {
        return Err(MigrationError::NoSuchVersion(to));
    }
    Ok(steps[..done].iter().skip(keep).rev())
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
