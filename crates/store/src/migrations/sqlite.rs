//! The migrations of the embedded database. Each runs in a transaction of its own.
//!
//! [`crate::sqlite::SqliteStore::open`] calls `up`; `punctual migrate` calls all three functions.

use punctual_core::time::Timestamp;
use rusqlite::{Connection, Params, TransactionBehavior};

use crate::portable::ready;

use super::runner::{self, AppliedMigration, Schema};
use super::{Migration, MigrationError, SchemaStatus, migrations};

/// The migrations that this binary knows, in order.
pub const STEPS: &[Migration] = migrations! {
    "sqlite":
    "0001_tasks",
    "0002_claim_order",
    "0003_partitions",
    "0004_order",
    "0005_queues",
    "0006_schedules",
    "0007_breakers",
    "0008_forecast",
    "0009_probes",
    "0010_overtaken_probes",
    "0011_held_by_state",
    "0012_notes_by_key",
    "0013_node_lease",
    "0014_queue_counts",
    "0015_queue_changes",
    "0016_covering_records",
    "0017_lists_by_lane",
    "0018_empty_lanes",
    "0019_upcoming",
    "0020_revived",
    "0021_operations",
    "0022_places",
    "0023_callback_body",
    "0024_upcoming_waiting",
    "0025_tenants",
    "0026_webhook_secrets",
};

/// Applies every missing migration; returns their numbers.
pub fn up(connection: &mut Connection, now: Timestamp) -> Result<Vec<u32>, MigrationError> {
    ready(runner::up(connection, STEPS, now))
}

/// Reverts every migration above `to` (zero reverts all), the last first; returns their numbers.
pub fn down(connection: &mut Connection, to: u32) -> Result<Vec<u32>, MigrationError> {
    ready(runner::down(connection, STEPS, to))
}

/// Every migration that this binary knows, and when it was applied.
pub fn status(connection: &Connection) -> Result<SchemaStatus, MigrationError> {
    runner::status(records(connection)?, STEPS)
}

impl Schema for Connection {
    async fn records(&mut self) -> Result<Vec<AppliedMigration>, MigrationError> {
        records(self)
    }

    async fn apply(&mut self, migration: &Migration, now: Timestamp) -> Result<(), MigrationError> {
        let record = "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)";
        let values = (migration.version, migration.name, migration.checksum(), now.as_millis());
        run(self, migration.up, record, values)
    }

    async fn revert(&mut self, migration: &Migration) -> Result<(), MigrationError> {
        let record = "DELETE FROM schema_migrations WHERE version = ?1";
        run(self, migration.down, record, [migration.version])
    }
}

/// Runs one migration and changes its record, in one transaction.
fn run(connection: &mut Connection, sql: &str, record: &str, values: impl Params) -> Result<(), MigrationError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(sql)?;
    transaction.execute(record, values)?;
    Ok(transaction.commit()?)
}

/// The migrations that were applied, by version.
fn records(connection: &Connection) -> Result<Vec<AppliedMigration>, MigrationError> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS schema_migrations (
             version    INTEGER PRIMARY KEY,
             name       TEXT    NOT NULL,
             checksum   TEXT    NOT NULL,
             applied_at INTEGER NOT NULL
         ) STRICT",
    )?;
    let mut query =
        connection.prepare("SELECT version, checksum, applied_at FROM schema_migrations ORDER BY version")?;
    let rows = query.query_map([], |row| {
        let at = Timestamp::from_millis(row.get(2)?);
        Ok(AppliedMigration { version: row.get(0)?, checksum: row.get(1)?, at })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
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
    fn every_migration_can_be_reverted_and_applied_again() {
        let mut connection = Connection::open_in_memory().unwrap();
        let versions: Vec<u32> = STEPS.iter().map(|step| step.version).collect();
        for _ in 0..2 {
            assert_eq!(up(&mut connection, NOW).unwrap(), versions);
            assert!(status(&connection).unwrap().steps.iter().all(|line| line.applied_at == Some(NOW)));
            assert_eq!(up(&mut connection, NOW).unwrap(), Vec::<u32>::new());
            assert_eq!(down(&mut connection, 0).unwrap(), versions.iter().rev().copied().collect::<Vec<_>>());
            assert_eq!(tables(&connection), Vec::<String>::new());
            assert!(status(&connection).unwrap().steps.iter().all(|line| line.applied_at.is_none()));
        }
    }

    #[test]
    fn down_stops_at_the_version_asked_for() {
        let mut connection = Connection::open_in_memory().unwrap();
        assert_eq!(ready(runner::up(&mut connection, &[ONE, TWO], NOW)).unwrap(), [1, 2]);
        assert!(matches!(ready(runner::down(&mut connection, &[ONE, TWO], 3)), Err(MigrationError::NoSuchVersion(3))));
        assert_eq!(ready(runner::down(&mut connection, &[ONE, TWO], 1)).unwrap(), [2]);
        assert_eq!(tables(&connection), ["a"]);
        assert_eq!(ready(runner::up(&mut connection, &[ONE, TWO], NOW)).unwrap(), [2]);
        assert_eq!(tables(&connection), ["a", "b"]);
    }

    #[test]
    fn a_failed_migration_leaves_nothing_behind() {
        let broken = Migration { version: 2, name: "broken", up: "CREATE TABLE b (x); CREATE TABLE a (x)", down: "" };
        let mut connection = Connection::open_in_memory().unwrap();
        let failed = ready(runner::up(&mut connection, &[ONE, broken], NOW)).unwrap_err().to_string();
        assert!(
            failed.starts_with("migration failed: ") && failed.ends_with(" (applied before that: 0001)"),
            "{failed}"
        );
        assert!(matches!(ready(runner::up(&mut connection, &[ONE, broken], NOW)), Err(MigrationError::Sqlite(_))));
        assert_eq!(tables(&connection), ["a"]);
        assert_eq!(ready(runner::up(&mut connection, &[ONE, TWO], NOW)).unwrap(), [2]);
    }

    #[test]
    fn a_failed_revert_names_the_migrations_before_it() {
        let broken = Migration { down: "DROP TABLE nowhere", ..ONE };
        let mut connection = Connection::open_in_memory().unwrap();
        ready(runner::up(&mut connection, &[broken, TWO], NOW)).unwrap();
        let failed = ready(runner::down(&mut connection, &[broken, TWO], 0)).unwrap_err().to_string();
        assert!(failed.contains("nowhere") && failed.ends_with(" (taken back before that: 0002)"), "{failed}");
        assert_eq!(tables(&connection), ["a"]);
    }

    #[test]
    fn a_newer_database_is_refused_and_shown() {
        let mut connection = Connection::open_in_memory().unwrap();
        ready(runner::up(&mut connection, &[ONE, TWO], NOW)).unwrap();
        let refused = ready(runner::up(&mut connection, &[ONE], NOW)).unwrap_err();
        assert!(matches!(refused, MigrationError::Newer { found: 2, known: 1 }));
        assert!(refused.to_string().contains("use a newer binary"));
        let shown = runner::status(records(&connection).unwrap(), &[ONE]).unwrap();
        assert_eq!((shown.version, shown.is_newer(), shown.steps.len()), (2, true, 1));
        assert!(!runner::status(records(&connection).unwrap(), &[ONE, TWO]).unwrap().is_newer());
    }

    #[test]
    fn a_missing_record_is_reported_by_name() {
        let mut connection = Connection::open_in_memory().unwrap();
        ready(runner::up(&mut connection, &[ONE, TWO], NOW)).unwrap();
        connection.execute_batch("DELETE FROM schema_migrations WHERE version = 1").unwrap();
        let refused = ready(runner::up(&mut connection, &[ONE, TWO], NOW)).unwrap_err();
        assert!(matches!(refused, MigrationError::Missing { version: 1, name: "one", found: 2 }), "{refused}");
    }

    #[test]
    fn a_changed_migration_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        ready(runner::up(&mut connection, &[ONE, TWO], NOW)).unwrap();
        let changed = Migration { up: "CREATE TABLE a (x, y)", ..ONE };
        let refused = ready(runner::up(&mut connection, &[changed, TWO], NOW)).unwrap_err();
        assert!(matches!(refused, MigrationError::Changed { version: 1, name: "one" }));
        assert!(refused.to_string().ends_with("use the release that applied it, or one that came after that"));
    }
}
