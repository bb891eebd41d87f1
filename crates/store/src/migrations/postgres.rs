//! The migrations of PostgreSQL, in its schema `punctual`.
//!
//! An advisory lock lets one node migrate at a time. A migration is one transaction, unless its
//! first line is `-- no-transaction`: then each statement runs by itself, as concurrent indexes
//! require, and can be repeated after an interruption. `punctual migrate` and `serve` call these
//! through [`crate::postgres::Migrator`].

use std::time::Duration;

use punctual_core::time::Timestamp;
use tokio::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};

use super::runner::{self, AppliedMigration, Schema};
use super::{Migration, MigrationError, SchemaStatus, migrations};

/// The migrations that this binary knows, in order.
pub const STEPS: &[Migration] = migrations! {
    "postgres":
    "0001_tasks",
    "0002_claim_order",
    "0003_partitions",
    "0004_enqueue",
    "0005_ledger",
    "0006_order",
    "0007_queues",
    "0008_schedules",
    "0009_breakers",
    "0010_forecast",
    "0011_probes",
    "0012_overtaken_probes",
    "0013_notes_by_key",
    "0014_node_lease",
    "0015_history_ahead",
    "0016_queue_counts",
    "0017_queue_changes",
    "0018_covering_records",
    "0019_unclaimable",
    "0020_history_by_lane",
    "0021_empty_lanes",
    "0022_node_locks",
    "0023_upcoming",
    "0024_retry_delays",
    "0025_revived",
    "0026_operations",
    "0027_enqueue_fields",
    "0028_places",
    "0029_enqueue_concurrency",
    "0030_callback_body",
    "0031_cancel_set_aside",
    "0032_upcoming_waiting",
    "0033_tenants",
    "0034_webhook_secrets",
};

/// The advisory lock around everything that changes tables, including the leader's upkeep. Its
/// number is the bytes of `punctual`.
pub(crate) const LOCK: i64 = i64::from_be_bytes(*b"punctual");

/// How long to wait between two attempts to get the lock.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A migration that waits for a table's lock blocks all later users of the table. So it waits
/// briefly, lets them pass, and tries again. (Building an index concurrently blocks no one. It may
/// wait for the oldest transaction.)
const SHORT_WAITS: &str = "SET LOCAL lock_timeout = '500ms'";
/// The pause between two attempts.
const STEP_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// For how long a migration is tried.
pub(crate) const STEP_PATIENCE: Duration = Duration::from_mins(1);

/// The first line of a migration that cannot run in a transaction.
const NO_TRANSACTION: &str = "-- no-transaction";

/// A session that migrates.
struct MigratingSession<'c> {
    client: &'c Client,
    /// For how long a migration tries to get its locks.
    patience: Duration,
}

/// Applies every missing migration, each tried for `patience`; returns their numbers.
pub(crate) async fn up(client: &Client, now: Timestamp, patience: Duration) -> Result<Vec<u32>, MigrationError> {
    expect_primary(client).await?;
    expect_utf8(client).await?;
    locked(client, async {
        prepare(client).await?;
        runner::up(&mut MigratingSession { client, patience }, STEPS, now).await
    })
    .await
}

/// Reverts every migration above `to` (zero reverts all), the last first; returns their numbers.
pub(crate) async fn down(client: &Client, to: u32, patience: Duration) -> Result<Vec<u32>, MigrationError> {
    expect_primary(client).await?;
    locked(client, runner::down(&mut MigratingSession { client, patience }, STEPS, to)).await
}

/// Every migration that this binary knows, and when it was applied.
pub(crate) async fn status(client: &Client) -> Result<SchemaStatus, MigrationError> {
    runner::status(records(client).await?, STEPS)
}

/// How many migrations are applied. Fails if a newer binary has applied others.
pub(crate) async fn applied(client: &Client) -> Result<usize, MigrationError> {
    runner::count(records(client).await?, STEPS)
}

impl Schema for MigratingSession<'_> {
    async fn records(&mut self) -> Result<Vec<AppliedMigration>, MigrationError> {
        records(self.client).await
    }

    async fn apply(&mut self, migration: &Migration, now: Timestamp) -> Result<(), MigrationError> {
        let Migration { version, name, up, .. } = *migration;
        let (checksum, at) = (migration.checksum(), now.as_millis());
        let record = "INSERT INTO punctual.schema_migrations (version, name, checksum, applied_at) VALUES";
        let record = format!("{record} ({version}, '{name}', '{checksum}', {at})");
        run(self.client, migration, up, &record, self.patience).await
    }

    async fn revert(&mut self, migration: &Migration) -> Result<(), MigrationError> {
        let record = format!("DELETE FROM punctual.schema_migrations WHERE version = {}", migration.version);
        run(self.client, migration, migration.down, &record, self.patience).await
    }
}

/// Fails on a standby, which is read-only.
async fn expect_primary(client: &Client) -> Result<(), MigrationError> {
    if ask(client, "SELECT pg_is_in_recovery()").await? { Err(MigrationError::Standby) } else { Ok(()) }
}

async fn expect_utf8(client: &Client) -> Result<(), MigrationError> {
    let row = client.query_one("SELECT current_setting('server_encoding')", &[]).await.map_err(fault)?;
    match row.get(0) {
        "UTF8" => Ok(()),
        other => Err(MigrationError::Encoding(other.to_owned())),
    }
}

/// Runs `work` under the lock. A session that breaks releases the lock.
async fn locked<T>(
    client: &Client,
    work: impl Future<Output = Result<T, MigrationError>>,
) -> Result<T, MigrationError> {
    // A wait inside the server would hold a snapshot, and a concurrent index waits for all
    // snapshots.
    while !ask(client, &format!("SELECT pg_try_advisory_lock({LOCK})")).await? {
        tokio::time::sleep(LOCK_RETRY_INTERVAL).await;
    }
    let done = work.await;
    let unlocked = client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await.map_err(fault);
    // The failure of the work comes first: a broken session has no lock to release.
    done.and_then(|done| unlocked.map(|_| done))
}

/// Makes the schema and the table of records if they are missing. A user who finds both needs no
/// right to make them.
async fn prepare(client: &Client) -> Result<(), MigrationError> {
    if !ask(client, "SELECT to_regnamespace('punctual') IS NOT NULL").await? {
        let right = "CREATE on the database (or have the schema made for it: CREATE SCHEMA punctual AUTHORIZATION …)";
        let made = client.batch_execute("CREATE SCHEMA IF NOT EXISTS punctual").await;
        made.map_err(|error| denied("making the schema punctual", right, &error))?;
    }
    if !is_recorded(client).await? {
        let sql = "CREATE TABLE IF NOT EXISTS punctual.schema_migrations (
             version    integer PRIMARY KEY,
             name       text    NOT NULL,
             checksum   text    NOT NULL,
             applied_at bigint  NOT NULL
         )";
        let made = client.batch_execute(sql).await;
        made.map_err(|error| denied("making the table schema_migrations", "CREATE on the schema punctual", &error))?;
    }
    Ok(())
}

/// Runs one migration and records it.
async fn run(
    client: &Client,
    step: &Migration,
    sql: &str,
    record: &str,
    patience: Duration,
) -> Result<(), MigrationError> {
    let (version, name) = (step.version, step.name);
    let right = "CREATE on the schema punctual, and ownership of everything in it";
    let failed = |error: Error| denied(&format!("migration {version} ({name})"), right, &error);
    if sql.starts_with(NO_TRANSACTION) {
        for statement in sql.split_inclusive(";\n") {
            client.batch_execute(statement).await.map_err(failed)?;
        }
        return client.batch_execute(record).await.map_err(failed);
    }
    let begun = Instant::now();
    loop {
        let done = client.batch_execute(&format!("BEGIN; {SHORT_WAITS}; {sql}; {record}; COMMIT")).await;
        let Err(error) = done else { return Ok(()) };
        let is_over = client.batch_execute("ROLLBACK").await.is_ok();
        if !is_over || error.code() != Some(&SqlState::LOCK_NOT_AVAILABLE) {
            return Err(failed(error));
        }
        if begun.elapsed() >= patience {
            return Err(MigrationError::Locked { version, name });
        }
        tokio::time::sleep(STEP_RETRY_INTERVAL).await;
    }
}

/// The migrations that were applied, in order.
async fn records(client: &Client) -> Result<Vec<AppliedMigration>, MigrationError> {
    if !is_recorded(client).await? {
        return Ok(Vec::new());
    }
    let query = "SELECT version, checksum, applied_at FROM punctual.schema_migrations ORDER BY version";
    let rows = client.query(query, &[]).await.map_err(|error| unread(&error))?;
    let step = |row: tokio_postgres::Row| AppliedMigration {
        version: u32::try_from(row.get::<_, i32>(0)).unwrap_or(u32::MAX),
        checksum: row.get(1),
        at: Timestamp::from_millis(row.get(2)),
    };
    Ok(rows.into_iter().map(step).collect())
}

/// Whether the table of records exists.
async fn is_recorded(client: &Client) -> Result<bool, MigrationError> {
    let row = client.query_one("SELECT to_regclass('punctual.schema_migrations') IS NOT NULL", &[]).await;
    Ok(row.map_err(|error| unread(&error))?.get(0))
}

/// Runs a query that returns one boolean.
async fn ask(client: &Client, question: &str) -> Result<bool, MigrationError> {
    Ok(client.query_one(question, &[]).await.map_err(fault)?.get(0))
}

fn unread(error: &Error) -> MigrationError {
    let right = "USAGE on the schema punctual and SELECT on its table schema_migrations";
    denied("reading the version of the schema", right, error)
}

/// The error of `doing` something that needs `right`.
fn denied(doing: &str, right: &'static str, error: &Error) -> MigrationError {
    let reason = crate::postgres::describe(error);
    if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
        MigrationError::Denied { doing: doing.to_owned(), right, reason }
    } else {
        MigrationError::Postgres(format!("{doing}: {reason}"))
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn fault(error: Error) -> MigrationError {
    MigrationError::Postgres(crate::postgres::describe(&error))
}
