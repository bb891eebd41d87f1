//! The migrations of PostgreSQL, in its schema `punctual`.
//!
//! Nodes that migrate at once take turns by an advisory lock. A step is done in one
//! transaction, unless its first line says `-- no-transaction`: then each of its statements
//! is by itself, as concurrent indexes want it, and can be made again when it was broken
//! off. `punctual migrate` and `serve` call these through [`crate::postgres::Database`].

use punctual_core::time::Timestamp;
use tokio_postgres::Client;

use super::{Applied, Migration, MigrationError, Status, above, check, lines};

/// The steps that this binary knows, in order.
pub const STEPS: &[Migration] = &[
    Migration {
        version: 1,
        name: "tasks",
        up: include_str!("../../migrations/postgres/0001_tasks.up.sql"),
        down: include_str!("../../migrations/postgres/0001_tasks.down.sql"),
    },
    Migration {
        version: 2,
        name: "claim_order",
        up: include_str!("../../migrations/postgres/0002_claim_order.up.sql"),
        down: include_str!("../../migrations/postgres/0002_claim_order.down.sql"),
    },
    Migration {
        version: 3,
        name: "partitions",
        up: include_str!("../../migrations/postgres/0003_partitions.up.sql"),
        down: include_str!("../../migrations/postgres/0003_partitions.down.sql"),
    },
    Migration {
        version: 4,
        name: "enqueue",
        up: include_str!("../../migrations/postgres/0004_enqueue.up.sql"),
        down: include_str!("../../migrations/postgres/0004_enqueue.down.sql"),
    },
    Migration {
        version: 5,
        name: "ledger",
        up: include_str!("../../migrations/postgres/0005_ledger.up.sql"),
        down: include_str!("../../migrations/postgres/0005_ledger.down.sql"),
    },
];

/// What whoever changes tables holds, the leader's upkeep among them: the bytes of `punctual`.
pub(crate) const LOCK: i64 = i64::from_be_bytes(*b"punctual");

/// How long to wait between two attempts to be the one who migrates.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_millis(100);

/// Whoever wants a table waits behind a step that waits for its lock: that must not take long. (A concurrent step holds
/// nobody up, and may wait for the oldest transaction to end.)
const SHORT_WAITS: &str = "SET LOCAL lock_timeout = '10s'";

/// How a step begins that cannot be done in a transaction.
const NO_TRANSACTION: &str = "-- no-transaction";

/// Applies every step that is missing; gives their numbers.
pub(crate) async fn up(client: &Client, now: Timestamp) -> Result<Vec<u32>, MigrationError> {
    locked(client, async {
        prepare(client).await?;
        let done = applied(client, STEPS).await?.len();
        let missing = &STEPS[done..];
        for step in missing {
            let record = "INSERT INTO punctual.schema_migrations (version, name, checksum, applied_at) VALUES";
            let (version, name, checksum) = (step.version, step.name, step.checksum());
            let record = format!("{record} ({version}, '{name}', '{checksum}', {})", now.as_millis());
            run(client, step.up, &record).await?;
        }
        Ok(missing.iter().map(|step| step.version).collect())
    })
    .await
}

/// Takes back every step above `to` (zero takes back all), the last first; gives their numbers.
pub(crate) async fn down(client: &Client, to: u32) -> Result<Vec<u32>, MigrationError> {
    locked(client, async {
        let done = applied(client, STEPS).await?.len();
        let mut taken_back = Vec::new();
        for step in above(STEPS, done, to)? {
            let record = format!("DELETE FROM punctual.schema_migrations WHERE version = {}", step.version);
            run(client, step.down, &record).await?;
            taken_back.push(step.version);
        }
        Ok(taken_back)
    })
    .await
}

/// Every step that this binary knows, and when it was applied.
pub(crate) async fn status(client: &Client) -> Result<Vec<Status>, MigrationError> {
    Ok(lines(STEPS, applied(client, STEPS).await?))
}

/// Does `work` while nobody else migrates. The lock goes with the session, should this one break.
async fn locked<T>(
    client: &Client,
    work: impl Future<Output = Result<T, MigrationError>>,
) -> Result<T, MigrationError> {
    // Who waited for the lock inside the server would have a snapshot, and a concurrent index waits for all of those.
    while !client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]).await.map_err(fault)?.get::<_, bool>(0) {
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    let done = work.await;
    client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await.map_err(fault)?;
    done
}

async fn prepare(client: &Client) -> Result<(), MigrationError> {
    let sql = "CREATE SCHEMA IF NOT EXISTS punctual;
         CREATE TABLE IF NOT EXISTS punctual.schema_migrations (
             version    integer PRIMARY KEY,
             name       text    NOT NULL,
             checksum   text    NOT NULL,
             applied_at bigint  NOT NULL
         )";
    client.batch_execute(sql).await.map_err(fault)
}

/// Does one step and writes down that it is done.
async fn run(client: &Client, step: &str, record: &str) -> Result<(), MigrationError> {
    if step.starts_with(NO_TRANSACTION) {
        for statement in step.split_inclusive(";\n") {
            client.batch_execute(statement).await.map_err(fault)?;
        }
        return client.batch_execute(record).await.map_err(fault);
    }
    let done = client.batch_execute(&format!("BEGIN; {SHORT_WAITS}; {step}; {record}; COMMIT")).await;
    if done.is_err() {
        client.batch_execute("ROLLBACK").await.map_err(fault)?;
    }
    done.map_err(fault)
}

/// When the steps were applied, checked against those that we know: the first so many of them.
async fn applied(client: &Client, steps: &[Migration]) -> Result<Vec<Timestamp>, MigrationError> {
    let there = "SELECT to_regclass('punctual.schema_migrations') IS NOT NULL";
    if !client.query_one(there, &[]).await.map_err(fault)?.get::<_, bool>(0) {
        return Ok(Vec::new());
    }
    let query = "SELECT version, checksum, applied_at FROM punctual.schema_migrations ORDER BY version";
    let rows = client.query(query, &[]).await.map_err(fault)?;
    let step = |row: tokio_postgres::Row| Applied {
        version: u32::try_from(row.get::<_, i32>(0)).unwrap_or(u32::MAX),
        checksum: row.get(1),
        at: Timestamp::from_millis(row.get(2)),
    };
    check(rows.into_iter().map(step).collect(), steps)
}

#[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` gives")]
fn fault(error: tokio_postgres::Error) -> MigrationError {
    MigrationError::Postgres(crate::postgres::spoken(&error))
}
