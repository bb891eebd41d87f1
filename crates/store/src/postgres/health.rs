//! Whether the database can be used right now: for the readiness of a node.

use std::time::Duration;

use punctual_core::store::StoreError;
use tokio_postgres::error::SqlState;

use super::connection::Session;
use super::fault::Fault;
use super::{ConnectError, PostgresStore, Sql};
use crate::migrations::postgres::STEPS;

/// How often the check asks for the lock of writes, and how long it waits in between: a change of
/// the schema may have the tables for half a second.
const LOCK_TRIES: usize = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(250);

impl PostgresStore {
    /// Writes and reads one row, and makes sure that nothing keeps tasks from being written. It
    /// never waits for a lock: the leases are renewed on the same connection.
    pub(super) async fn check(&self) -> Result<(), StoreError> {
        let now = self.now().as_millis();
        self.check_locks().await?;
        let rows = self.leases().call(async |session| session.query(Sql::Probe, &[&now]).await).await?;
        match rows.len() {
            1 => Ok(()),
            _ => Err(StoreError::Corrupt("the row that was written is missing".to_owned())),
        }
    }

    /// Fails if a lock keeps the tasks from being written for longer than a moment.
    async fn check_locks(&self) -> Result<(), StoreError> {
        for tries in 1..=LOCK_TRIES {
            if self.leases().call(async |session| lock_briefly(session).await).await? {
                return Ok(());
            }
            if tries < LOCK_TRIES {
                tokio::time::sleep(LOCK_PAUSE).await;
            }
        }
        Err(StoreError::Unavailable("a lock keeps the tasks from being written".to_owned()))
    }

    /// Why the schema is too old for this binary, if it is. It may be newer.
    pub async fn missing_migrations(&self) -> Result<Option<ConnectError>, StoreError> {
        let known = STEPS.len();
        let last = i32::try_from(known).expect("invariant: there are few migrations");
        let rows = self.leases().call(async |session| session.query(Sql::SchemaSteps, &[&last]).await).await?;
        let found = rows.first().and_then(|row| usize::try_from(row.get::<_, i64>(0)).ok()).unwrap_or(0);
        Ok((found < known).then_some(ConnectError::Older { found, known }))
    }
}

/// Whether the lock of every write of tasks can be had at once. The lock ends with the text, which
/// is one transaction.
async fn lock_briefly(session: &Session) -> Result<bool, Fault> {
    match session.run("LOCK TABLE tasks, lanes, counts, queue_counts IN ROW EXCLUSIVE MODE NOWAIT; SELECT 1").await {
        Ok(()) => Ok(true),
        Err(fault) if fault.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => Ok(false),
        Err(fault) => Err(fault),
    }
}
