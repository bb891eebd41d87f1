//! Runs migrations on a PostgreSQL database.
//!
//! `punctual migrate` and the start of a node use it. It does not check the schema when it opens.

use std::time::Duration;

use punctual_core::time::Timestamp;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::connection::{Address, ConnectError, refuse_shared_sessions};
use super::fault::Fault;
use crate::migrations::postgres as migrations;
use crate::migrations::{MigrationError, SchemaStatus};

/// The settings of a session that migrates: a migration may take long, and so may the wait for
/// another node that migrates.
const SETTINGS: &str = "SET search_path = punctual; SET statement_timeout = 0; SET lock_timeout = 0";

/// A connection that migrates (see the module).
pub struct Migrator {
    client: Client,
    driver: JoinHandle<()>,
    /// For how long a step tries to get its locks.
    pub(super) patience: Duration,
}

impl Migrator {
    /// Connects to the database that `url` names.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        Self::open(&Address::parse(url)?).await
    }

    pub(crate) async fn open(address: &Address) -> Result<Self, ConnectError> {
        let fault = |fault: Fault| ConnectError::of(address, fault);
        let (client, connection) = address.connect(|_| {}).await.map_err(fault)?;
        let driver = tokio::spawn(async move {
            // The statement under way gets the error.
            drop(connection.await);
        });
        let database = Self { client, driver, patience: migrations::STEP_PATIENCE };
        refuse_shared_sessions(address, &database.client).await?;
        database.client.batch_execute(SETTINGS).await.map_err(|error| fault(error.into()))?;
        Ok(database)
    }

    /// Applies every missing migration; returns their numbers. One node migrates at a time.
    pub async fn up(&self, now: Timestamp) -> Result<Vec<u32>, MigrationError> {
        migrations::up(&self.client, now, self.patience).await
    }

    /// Reverts every migration above `to`; returns their numbers.
    pub async fn down(&self, to: u32) -> Result<Vec<u32>, MigrationError> {
        migrations::down(&self.client, to, self.patience).await
    }

    /// Every migration, and when it was applied.
    pub async fn status(&self) -> Result<SchemaStatus, MigrationError> {
        migrations::status(&self.client).await
    }

    /// How many migrations are applied. Fails if a newer binary has applied others.
    pub(crate) async fn applied(&self) -> Result<usize, MigrationError> {
        migrations::applied(&self.client).await
    }

    /// Whether it holds tasks, live or finished. A database without our tables holds none.
    pub async fn has_tasks(&self) -> bool {
        let any = "SELECT EXISTS (SELECT 1 FROM tasks) OR EXISTS (SELECT 1 FROM history)";
        self.client.query_one(any, &[]).await.is_ok_and(|row| row.get(0))
    }
}

impl Drop for Migrator {
    fn drop(&mut self) {
        self.driver.abort();
    }
}
