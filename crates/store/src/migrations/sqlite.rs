//! The migrations of the embedded database, each in a transaction of its own.
//!
//! [`crate::sqlite::SqliteStore::open`] goes up by itself; `punctual migrate` calls all three.

use punctual_core::time::Timestamp;
use rusqlite::{Connection, Params, TransactionBehavior};

use super::{Applied, Migration, MigrationError, Standing, above, count, standing};

/// The steps that this binary knows, in order.
pub const STEPS: &[Migration] = &[
    Migration {
        version: 1,
        name: "tasks",
        up: include_str!("../../migrations/sqlite/0001_tasks.up.sql"),
        down: include_str!("../../migrations/sqlite/0001_tasks.down.sql"),
    },
    Migration {
        version: 2,
        name: "claim_order",
        up: include_str!("../../migrations/sqlite/0002_claim_order.up.sql"),
        down: include_str!("../../migrations/sqlite/0002_claim_order.down.sql"),
    },
    Migration {
        version: 3,
        name: "partitions",
        up: include_str!("../../migrations/sqlite/0003_partitions.up.sql"),
        down: include_str!("../../migrations/sqlite/0003_partitions.down.sql"),
    },
    Migration {
        version: 4,
        name: "order",
        up: include_str!("../../migrations/sqlite/0004_order.up.sql"),
        down: include_str!("../../migrations/sqlite/0004_order.down.sql"),
    },
    Migration {
        version: 5,
        name: "queues",
        up: include_str!("../../migrations/sqlite/0005_queues.up.sql"),
        down: include_str!("../../migrations/sqlite/0005_queues.down.sql"),
    },
    Migration {
        version: 6,
        name: "schedules",
        up: include_str!("../../migrations/sqlite/0006_schedules.up.sql"),
        down: include_str!("../../migrations/sqlite/0006_schedules.down.sql"),
    },
    Migration {
        version: 7,
        name: "breakers",
        up: include_str!("../../migrations/sqlite/0007_breakers.up.sql"),
        down: include_str!("../../migrations/sqlite/0007_breakers.down.sql"),
    },
    Migration {
        version: 8,
        name: "forecast",
        up: include_str!("../../migrations/sqlite/0008_forecast.up.sql"),
        down: include_str!("../../migrations/sqlite/0008_forecast.down.sql"),
    },
    Migration {
        version: 9,
        name: "probes",
        up: include_str!("../../migrations/sqlite/0009_probes.up.sql"),
        down: include_str!("../../migrations/sqlite/0009_probes.down.sql"),
    },
    Migration {
        version: 10,
        name: "overtaken_probes",
        up: include_str!("../../migrations/sqlite/0010_overtaken_probes.up.sql"),
        down: include_str!("../../migrations/sqlite/0010_overtaken_probes.down.sql"),
    },
    Migration {
        version: 11,
        name: "held_by_state",
        up: include_str!("../../migrations/sqlite/0011_held_by_state.up.sql"),
        down: include_str!("../../migrations/sqlite/0011_held_by_state.down.sql"),
    },
];

/// Applies every step that is missing; gives their numbers.
pub fn up(connection: &mut Connection, now: Timestamp) -> Result<Vec<u32>, MigrationError> {
    migrate_up(connection, STEPS, now)
}

/// Takes back every step above `to` (zero takes back all), the last first; gives their numbers.
pub fn down(connection: &mut Connection, to: u32) -> Result<Vec<u32>, MigrationError> {
    migrate_down(connection, STEPS, to)
}

/// Every step that this binary knows, and when it was applied.
pub fn status(connection: &Connection) -> Result<Standing, MigrationError> {
    standing(applied(connection)?, STEPS)
}

fn migrate_up(connection: &mut Connection, steps: &[Migration], now: Timestamp) -> Result<Vec<u32>, MigrationError> {
    let done = count(applied(connection)?, steps)?;
    let mut made = Vec::new();
    for step in &steps[done..] {
        let record = "INSERT INTO schema_migrations (version, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)";
        let values = (step.version, step.name, step.checksum(), now.as_millis());
        run(connection, step.up, record, values).map_err(|reason| reason.after("applied", &made))?;
        made.push(step.version);
    }
    Ok(made)
}

fn migrate_down(connection: &mut Connection, steps: &[Migration], to: u32) -> Result<Vec<u32>, MigrationError> {
    let done = count(applied(connection)?, steps)?;
    let mut taken_back = Vec::new();
    for step in above(steps, done, to)? {
        let record = "DELETE FROM schema_migrations WHERE version = ?1";
        run(connection, step.down, record, [step.version]).map_err(|reason| reason.after("taken back", &taken_back))?;
        taken_back.push(step.version);
    }
    Ok(taken_back)
}

/// Does one step and writes down that it is done.
fn run(connection: &mut Connection, step: &str, record: &str, values: impl Params) -> Result<(), MigrationError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.execute_batch(step)?;
    transaction.execute(record, values)?;
    Ok(transaction.commit()?)
}

/// The steps that were applied, in order.
fn applied(connection: &Connection) -> Result<Vec<Applied>, MigrationError> {
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
        Ok(Applied { version: row.get(0)?, checksum: row.get(1)?, at })
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
    fn every_step_can_be_taken_back_and_made_again() {
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
        let failed = migrate_up(&mut connection, &[ONE, broken], NOW).unwrap_err().to_string();
        assert!(
            failed.starts_with("migration failed: ") && failed.ends_with(" (applied before that: 0001)"),
            "{failed}"
        );
        assert!(matches!(migrate_up(&mut connection, &[ONE, broken], NOW), Err(MigrationError::Sqlite(_))));
        assert_eq!(tables(&connection), ["a"]);
        assert_eq!(migrate_up(&mut connection, &[ONE, TWO], NOW).unwrap(), [2]);
    }

    #[test]
    fn what_was_taken_back_before_a_step_failed_is_told() {
        let broken = Migration { down: "DROP TABLE nowhere", ..ONE };
        let mut connection = Connection::open_in_memory().unwrap();
        migrate_up(&mut connection, &[broken, TWO], NOW).unwrap();
        let failed = migrate_down(&mut connection, &[broken, TWO], 0).unwrap_err().to_string();
        assert!(failed.contains("nowhere") && failed.ends_with(" (taken back before that: 0002)"), "{failed}");
        assert_eq!(tables(&connection), ["a"]);
    }

    #[test]
    fn a_newer_database_is_refused_and_shown() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate_up(&mut connection, &[ONE, TWO], NOW).unwrap();
        let refused = migrate_up(&mut connection, &[ONE], NOW).unwrap_err();
        assert!(matches!(refused, MigrationError::Newer { found: 2, known: 1 }));
        assert!(refused.to_string().contains("use a newer binary"));
        let shown = standing(applied(&connection).unwrap(), &[ONE]).unwrap();
        assert_eq!((shown.version, shown.is_newer(), shown.steps.len()), (2, true, 1));
        assert!(!standing(applied(&connection).unwrap(), &[ONE, TWO]).unwrap().is_newer());
    }

    #[test]
    fn a_step_that_is_not_recorded_is_told_by_its_name() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate_up(&mut connection, &[ONE, TWO], NOW).unwrap();
        connection.execute_batch("DELETE FROM schema_migrations WHERE version = 1").unwrap();
        let refused = migrate_up(&mut connection, &[ONE, TWO], NOW).unwrap_err();
        assert!(matches!(refused, MigrationError::Missing { version: 1, name: "one", found: 2 }), "{refused}");
    }

    #[test]
    fn a_changed_step_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate_up(&mut connection, &[ONE, TWO], NOW).unwrap();
        let changed = Migration { up: "CREATE TABLE a (x, y)", ..ONE };
        let refused = migrate_up(&mut connection, &[changed, TWO], NOW).unwrap_err();
        assert!(matches!(refused, MigrationError::Changed { version: 1, name: "one" }));
        assert!(refused.to_string().ends_with("use the release that applied it, or one that came after that"));
    }
}
