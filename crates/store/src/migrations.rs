//! Numbered, reversible migrations, for both databases.
//!
//! Each is a pair of SQL files that are built into the binary. `schema_migrations` records which
//! were applied, with a digest of the text: a file that was edited later is noticed.
//! `runner` decides what to run; [`sqlite`] and [`postgres`] run it. Invariant: the versions are 1,
//! 2, 3 … without gaps.

pub mod postgres;
mod runner;
pub mod sqlite;

use punctual_core::time::Timestamp;
use sha2::{Digest, Sha256};

/// The migrations of a folder, by the names of their files.
macro_rules! migrations {
    ($folder:literal: $($file:literal,)+) => {
        &[$(Migration::of_file(
            $file,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/", $folder, "/", $file, ".up.sql")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/", $folder, "/", $file, ".down.sql")),
        ),)+]
    };
}
use migrations;

/// A step of the schema.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    /// Its number, from 1 without gaps.
    pub version: u32,
    /// What it is about.
    pub name: &'static str,
    up: &'static str,
    down: &'static str,
}

/// Whether a migration was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigrationStatus {
    /// Its number.
    pub version: u32,
    /// What it is about.
    pub name: &'static str,
    /// When it was applied; none if it was not.
    pub applied_at: Option<Timestamp>,
}

/// The schema of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaStatus {
    /// Every migration that this binary knows.
    pub steps: Vec<MigrationStatus>,
    /// The last migration that was applied, by this binary or a newer one; zero if there is none.
    pub version: u32,
}

impl SchemaStatus {
    /// Whether the database has migrations that this binary does not know.
    pub fn is_newer(&self) -> bool {
        self.steps.last().is_none_or(|last| self.version > last.version)
    }
}

/// Why a database was not migrated.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A newer binary has migrated it.
    #[error(
        "the database has schema version {found}, but this binary knows versions up to {known}: use a newer binary"
    )]
    Newer {
        /// The version of the database.
        found: u32,
        /// The last version of this binary.
        known: u32,
    },
    /// A migration was applied with other content than this binary has.
    #[error(
        "migration {version} ({name}) was applied to the database with other content than this binary has: use the \
         release that applied it, or one that came after that"
    )]
    Changed {
        /// Its number.
        version: u32,
        /// What it is about.
        name: &'static str,
    },
    /// A migration is not recorded, but later ones are.
    #[error(
        "the database has schema version {found}, but no record of migration {version} ({name}), which comes before \
         it: restore the row of schema_migrations from a backup"
    )]
    Missing {
        /// Its number.
        version: u32,
        /// What it is about.
        name: &'static str,
        /// The version of the database.
        found: u32,
    },
    /// There is no such version to go down to.
    #[error("there is no schema version {0} to go down to")]
    NoSuchVersion(u32),
    /// SQLite failed.
    #[error("migration failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL failed.
    #[error("migration failed: {0}")]
    Postgres(String),
    /// Another session holds a lock that a migration needs.
    #[error(
        "migration {version} ({name}) did not get a lock that another session holds: find the sessions with locks on \
         tables of the schema punctual in pg_locks, and their xact_start in pg_stat_activity; end them and try again"
    )]
    Locked {
        /// Its number.
        version: u32,
        /// What it is about.
        name: &'static str,
    },
    /// The database user lacks a right.
    #[error("{doing} needs a right that the user of the database lacks, {right}: {reason}")]
    Denied {
        /// What needs the right.
        doing: String,
        /// The right.
        right: &'static str,
        /// The error of PostgreSQL.
        reason: String,
    },
    /// The server is read-only.
    #[error("the server is a standby, which is read-only: name the primary")]
    Standby,
    /// The database cannot hold every text.
    #[error("the database must be encoded in UTF8, this one is {0}: create one with ENCODING 'UTF8'")]
    Encoding(String),
    /// Some migrations were done before one failed.
    #[error("{reason} ({done} before that: {})", numbers(steps))]
    Partly {
        /// What was done with them.
        done: &'static str,
        /// Their numbers.
        steps: Vec<u32>,
        /// The failure.
        reason: Box<MigrationError>,
    },
}

impl MigrationError {
    /// This failure, after these migrations were `done`.
    fn after(self, done: &'static str, steps: &[u32]) -> Self {
        match steps {
            [] => self,
            some => Self::Partly { done, steps: some.to_vec(), reason: Box::new(self) },
        }
    }
}

/// The numbers of migrations, as shown to people.
pub fn numbers(versions: &[u32]) -> String {
    match versions {
        [] => "nothing".to_owned(),
        some => some.iter().map(|version| format!("{version:04}")).collect::<Vec<_>>().join(", "),
    }
}

impl Migration {
    /// The migration in files that are named like `0001_tasks`.
    const fn of_file(file: &'static str, up: &'static str, down: &'static str) -> Self {
        let (number, name) = file.split_at("0001_".len());
        let (mut version, mut at) = (0, 0);
        while at < "0001".len() {
            version = version * 10 + (number.as_bytes()[at] - b'0') as u32;
            at += 1;
        }
        Self { version, name, up, down }
    }

    fn checksum(&self) -> String {
        let mut digest = Sha256::new();
        digest.update(self.up);
        digest.update([0]);
        digest.update(self.down);
        hex::encode(digest.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_have_no_gaps() {
        for known in [sqlite::STEPS, postgres::STEPS] {
            for (migration, version) in known.iter().zip(1..) {
                assert_eq!(migration.version, version, "{}", migration.name);
            }
        }
        let last = sqlite::STEPS[10];
        assert_eq!((last.version, last.name), (11, "held_by_state"));
    }

    #[test]
    fn a_checksum_covers_both_files() {
        let migration = Migration { version: 1, name: "one", up: "up", down: "down" };
        let others = [Migration { up: "u", down: "pdown", ..migration }, Migration { down: "other", ..migration }];
        assert!(others.iter().all(|other| other.checksum() != migration.checksum()));
        assert_eq!(migration.checksum(), hex::encode(Sha256::digest("up\0down")));
    }
}
