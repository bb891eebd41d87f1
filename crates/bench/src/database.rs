//! A database of the measurement's own on the PostgreSQL that it is given.
//!
//! A figure means something only on an empty database. So the bench creates one with a random name
//! and drops it at the end, also after a signal. It touches nothing else on that server.

use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio_postgres::{Client, NoTls};
use url::Url;
use uuid::Uuid;

/// How long a connection or a statement may take.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the cleanup after millions of tasks may take.
const CLEANUP_TIMEOUT: Duration = Duration::from_mins(10);

/// A database that exists for one measurement.
pub struct BenchDatabase {
    /// The server, for the statements that create and drop it.
    server: Url,
    name: String,
    version: Option<String>,
}

impl BenchDatabase {
    /// A database that does not exist yet.
    pub fn new(server: Url) -> Self {
        Self { server, name: format!("punctual_bench_{}", Uuid::new_v4().simple()), version: None }
    }

    /// Creates it, and says so on stderr.
    pub async fn create(&mut self) -> anyhow::Result<()> {
        let client = connect(&self.server).await?;
        let created = in_time(client.batch_execute(&format!("CREATE DATABASE {}", self.name))).await;
        created.context("cannot create a database for the measurement")?;
        let version = in_time(client.query_one("SHOW server_version", &[])).await?;
        self.version = Some(version.try_get(0)?);
        eprintln!("created the database {} for the measurement; it is dropped at the end", self.name);
        Ok(())
    }

    /// The URL that servers connect to.
    pub fn url(&self) -> Url {
        let mut url = self.server.clone();
        url.set_path(&self.name);
        url
    }

    /// The version of PostgreSQL, once it is known.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Begins a transaction with a snapshot of the database, and keeps it open.
    pub async fn hold(&self) -> anyhow::Result<OpenTransaction> {
        let client = connect(&self.url()).await?;
        // The snapshot is taken by the first statement.
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_catalog.pg_class";
        in_time(client.batch_execute(begin)).await.context("cannot begin a transaction to hold open")?;
        Ok(OpenTransaction(client))
    }

    /// Runs the cleanup that loading many tasks has left to do.
    pub async fn clean_up(&self) -> anyhow::Result<()> {
        let client = connect(&self.url()).await?;
        for what in ["VACUUM (ANALYZE) punctual.tasks", "CHECKPOINT"] {
            let done = within(CLEANUP_TIMEOUT, client.batch_execute(what)).await;
            done.with_context(|| format!("{what} failed after the tasks were loaded"))?;
        }
        Ok(())
    }

    /// Drops it, and closes the connections that are left.
    pub async fn remove(self) -> anyhow::Result<()> {
        let dropped = async {
            let client = connect(&self.server).await?;
            in_time(client.batch_execute(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name))).await
        };
        dropped.await.with_context(|| format!("cannot drop the database {}", self.name))
    }
}

/// A transaction that is held open.
pub struct OpenTransaction(Client);

impl OpenTransaction {
    /// Ends it; fails if it was not open any more.
    pub async fn release(self) -> anyhow::Result<()> {
        in_time(self.0.batch_execute("COMMIT")).await.context("the transaction was not held open to the end")
    }
}

async fn connect(url: &Url) -> anyhow::Result<Client> {
    let failed = || format!("cannot connect to the PostgreSQL at {}", url.host_str().unwrap_or_default());
    let (client, connection) = in_time(tokio_postgres::connect(url.as_str(), NoTls)).await.with_context(failed)?;
    // It ends when the client is dropped. If it is lost, the client's calls fail.
    tokio::spawn(connection);
    Ok(client)
}

async fn in_time<T>(done: impl Future<Output = Result<T, tokio_postgres::Error>>) -> anyhow::Result<T> {
    within(STATEMENT_TIMEOUT, done).await
}

async fn within<T>(
    timeout: Duration,
    done: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> anyhow::Result<T> {
    let done = tokio::time::timeout(timeout, done).await;
    let done = done.map_err(|_| anyhow!("no answer within {} seconds", timeout.as_secs()))?;
    // The error itself says only that it came from the server; the message is in its cause.
    done.map_err(|error| match error.as_db_error() {
        Some(cause) => anyhow!("{}", cause.message()),
        None => anyhow!(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_the_database_differs() {
        let server: Url = "postgres://me:secret@db.example:5433/mine?application_name=a".parse().expect("a URL");
        let database = BenchDatabase::new(server);
        let url = database.url();
        assert_eq!(url.as_str().replace(&database.name, "mine"), database.server.as_str());
        assert_ne!(url, database.server);
        assert_ne!(BenchDatabase::new(database.server.clone()).name, database.name);
    }
}
