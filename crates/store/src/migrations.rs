//! Numbered, reversible migrations of the embedded database.
//!
//! Each is a pair of SQL files, built into the binary. What was applied is recorded in
//! `schema_migrations` with a digest of its text, in the transaction that applied it:
//! a database is at a version or it is not. [`crate::sqlite::SqliteStore::open`] goes up by
//! itself; `punctual migrate` calls all three.

use punctual_core::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior};
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

/// The steps that this binary knows, in order.
pub const SQLITE: &[Migration] = &[
    Migration {
        version: 1,
        name: "tasks",
        up: include_str!("../migrations/sqlite/0001_tasks.up.sql"),
        down: include_str!("../migrations/sqlite/0001_tasks.down.sql"),
    },
    Migration {
        version: 2,
        name: "claim_order",
        up: include_str!("../migrations/sqlite/0002_claim_order.up.sql"),
        down: include_str!("../migrations/sqlite/0002_claim_order.down.sql"),
    },
];

/// One line of [`status`].
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
    /// The database did not do it.
    #[error("migration failed: {0}")]
    Sqlite(#[from] rusqlite::Error),
}

/// Applies every step that is missing; gives their numbers.
pub fn up(connection: &mut Connection, now: Timestamp) -> Result<Vec<u32>, MigrationError> {
    migrate_up(connection, SQLITE, now)
}

/// Takes back every step above `to` (zero takes back all), the last first; gives their numbers.
pub fn down(connection: &mut Connection, to: u32) -> Result<Vec<u32>, MigrationError> {
    migrate_down(connection, SQLITE, to)
}

/// Every step that this binary knows, and when it was applied.
pub fn status(connection: &Connection) -> Result<Vec<Status>, MigrationError> {
    let mut applied = applied(connection, SQLITE)?.into_iter().map(|(_, at)| at);
    let line = |step: &Migration| Status { version: step.version, name: step.name, applied_at: applied.next() };
    Ok(SQLITE.iter().map(line).collect())
}

fn migrate_up(connection: &mut Connection, steps: &[Migration], now: Timestamp) -> Result<Vec<u32>, MigrationError> {
    let done = applied(connection, steps)?.len();
    let missing = &steps[done..];
    for step in missing {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(step.up)?;
        transaction.execute(
            "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)",
            (step.version, step.name, step.checksum(), now.as_millis()),
        )?;
        transaction.commit()?;
    }
    Ok(missing.iter().map(|step| step.version).collect())
}

fn migrate_down(connection: &mut Connection, steps: &[Migration], to: u32) -> Result<Vec<u32>, MigrationError> {
    let done = applied(connection, steps)?.len();
    let keep = usize::try_from(to).unwrap_or(usize::MAX);
    if keep > steps.len() {
        return Err(MigrationError::NoSuchVersion(to));
    }
    let mut taken_back = Vec::new();
    for step in steps[..done].iter().skip(keep).rev() {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute_batch(step.down)?;
        transaction.execute("DELETE FROM schema_migrations WHERE version = ?1", [step.version])?;
        transaction.commit()?;
        taken_back.push(step.version);
    }
    Ok(taken_back)
}

/// The steps that were applied, checked against those that we know: the first so many of them.
fn applied(connection: &Connection, steps: &[Migration]) -> Result<Vec<(u32, Timestamp)>, MigrationError> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS schema_migrations (
             version    INTEGER PRIMARY KEY,
             name       TEXT    NOT NULL,
             checksum   TEXT    NOT NULL,
             applied_at INTEGER NOT NULL
         ) STRICT",
    )?;
    let known = u32::try_from(steps.len()).expect("invariant: there are few migrations");
    let found: Option<u32> =
        connection.query_row("SELECT max(version) FROM schema_migrations", [], |row| row.get(0)).optional()?.flatten();
    if let Some(found) = found.filter(|found| *found > known) {
        return Err(MigrationError::Newer { found, known });
    }
    let mut query =
        connection.prepare("SELECT version, checksum, applied_at FROM schema_migrations ORDER BY version")?;
    let mut rows = query.query([])?;
    let mut applied = Vec::new();
    for step in steps {
        let Some(row) = rows.next()? else { break };
        if row.get::<_, u32>(0)? != step.version || row.get::<_, String>(1)? != step.checksum() {
            return Err(MigrationError::Changed { version: step.version, name: step.name });
        }
        applied.push((step.version, Timestamp::from_millis(row.get(2)?)));
    }
    Ok(applied)
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

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_779_472_800_000);
    const ONE: Migration = Migration { version: 1, name: "one", up: "CREATE TABLE a (x)", down: "DROP TABLE a" };
    const TWO: Migration = Migration { version: 2, name: "two", up: "CREATE TABLE b (x)", down: "DROP TABLE b" };

    fn tables(connection: &Connection) -> Vec<String> {
        let mut query = connection
            .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT GLOB 'schema_*' ORDER BY name")
            .unwrap();
        query.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn every_step_can_be_taken_back_and_made_again() {
        let mut connection = Connection::open_in_memory().unwrap();
        let versions: Vec<u32> = SQLITE.iter().map(|step| step.version).collect();
        for _ in 0..2 {
            assert_eq!(up(&mut connection, NOW).unwrap(), versions);
            assert!(status(&connection).unwrap().iter().all(|line| line.applied_at == Some(NOW)));
            assert_eq!(up(&mut connection, NOW).unwrap(), Vec::<u32>::new());
            assert_eq!(down(&mut connection, 0).unwrap(), versions.iter().rev().copied().collect::<Vec<_>>());
            assert_eq!(tables(&connection), Vec::<String>::new());
            assert!(status(&connection).unwrap().iter().all(|line| line.applied_at.is_none()));
        }
    }

    #[test]
    fn a_step_goes_down_to_the_version_asked_for() {
        let mut connection = Connection::open_in_memory().unwrap();
        assert_eq!(migrate_up(&mut connection, &[ONE, TWO], NOW).unwrap(), [1, 2]);
        assert!(matches!(migrate_down(&mut connection, &[ONE, TWO], 3), Err(MigrationError::NoSuchVersion(3))));
        assert_eq!(migrate_down(&mut connection, &[ONE, TWO], 1).unwrap(), [2]);
        assert_eq!(tables(&connection), ["a"]);
        assert_eq!(migrate_up(&mut connection, &[ONE, TWO], NOW).unwrap(), [2]);
        assert_eq!(tables(&connection), ["a", "b"]);
    }

    #[test]
    fn a_step_that_fails_leaves_nothing_behind() {
        let broken = Migration { version: 2, name: "broken", up: "CREATE TABLE b (x); CREATE TABLE a (x)", down: "" };
        let mut connection = Connection::open_in_memory().unwrap();
        assert!(matches!(migrate_up(&mut connection, &[ONE, broken], NOW), Err(MigrationError::Sqlite(_))));
        assert_eq!(tables(&connection), ["a"]);
        assert_eq!(migrate_up(&mut connection, &[ONE, TWO], NOW).unwrap(), [2]);
    }

    #[test]
    fn a_newer_database_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate_up(&mut connection, &[ONE, TWO], NOW).unwrap();
        let refused = migrate_up(&mut connection, &[ONE], NOW).unwrap_err();
        assert!(matches!(refused, MigrationError::Newer { found: 2, known: 1 }));
        assert!(refused.to_string().contains("use a newer binary"));
    }

    #[test]
    fn a_changed_step_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate_up(&mut connection, &[ONE, TWO], NOW).unwrap();
        let changed = Migration { up: "CREATE TABLE a (x, y)", ..ONE };
        let refused = migrate_up(&mut connection, &[changed, TWO], NOW).unwrap_err();
        assert!(matches!(refused, MigrationError::Changed { version: 1, name: "one" }));
    }
}
