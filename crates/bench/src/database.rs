//! A database of the measurement's own on the PostgreSQL that it is given.
//!
//! A figure means something only on an empty database, so the bench makes one with a random name
//! and drops it at the end, also after a signal. Whatever else is on that server is left alone.

use std::time::Duration;

use anyhow::{Context, anyhow};
use reqwest::Url;
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

/// How long the server may take to let one in, or to do what it is told.
const PATIENCE: Duration = Duration::from_secs(30);
/// And how long to tidy up after millions of tasks.
const UPKEEP: Duration = Duration::from_mins(10);

/// See the module.
pub struct Database {
    /// Where it is made and dropped from.
    server: Url,
    name: String,
    version: Option<String>,
}

impl Database {
    /// A database that is not there yet.
    pub fn new(server: Url) -> Self {
        Self { server, name: format!("punctual_bench_{}", Uuid::new_v4().simple()), version: None }
    }

    /// Makes it, and says so.
    pub async fn make(&mut self) -> anyhow::Result<()> {
        let client = connect(&self.server).await?;
        let made = patiently(client.batch_execute(&format!("CREATE DATABASE {}", self.name))).await;
        made.context("cannot make a database for the measurement")?;
        let version = patiently(client.query_one("SHOW server_version", &[])).await?;
        self.version = Some(version.try_get(0)?);
        eprintln!("the database {} is made for the measurement, and dropped at the end", self.name);
        Ok(())
    }

    /// How servers connect to it.
    pub fn url(&self) -> Url {
        let mut url = self.server.clone();
        url.set_path(&self.name);
        url
    }

    /// The version of the PostgreSQL it is on, once that is known.
    pub fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// Begins a transaction that sees the database as it is now, and keeps it open.
    pub async fn hold(&self) -> anyhow::Result<Held> {
        let client = connect(&self.url()).await?;
        // The snapshot is taken by the first statement.
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_catalog.pg_class";
        patiently(client.batch_execute(begin)).await.context("cannot begin a transaction to hold open")?;
        Ok(Held(client))
    }

    /// Has the server do what loading many tasks has left for it to do later.
    pub async fn settle(&self) -> anyhow::Result<()> {
        let client = connect(&self.url()).await?;
        for what in ["VACUUM (ANALYZE) punctual.tasks", "CHECKPOINT"] {
            let done = within(UPKEEP, client.batch_execute(what)).await;
            done.with_context(|| format!("{what} failed after the tasks were loaded"))?;
        }
        Ok(())
    }

    /// Drops it, with whoever is still connected.
    pub async fn remove(self) -> anyhow::Result<()> {
        let dropped = async {
            let client = connect(&self.server).await?;
            patiently(client.batch_execute(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name))).await
        };
        dropped.await.with_context(|| format!("cannot drop the database {}", self.name))
    }
}

/// A transaction that is held open.
pub struct Held(Client);

impl Held {
    /// Ends it; fails if it was not open any more.
    pub async fn release(self) -> anyhow::Result<()> {
        patiently(self.0.batch_execute("COMMIT")).await.context("the transaction was not held open to the end")
    }
}

async fn connect(url: &Url) -> anyhow::Result<Client> {
    let told = || format!("cannot connect to the PostgreSQL at {}", url.host_str().unwrap_or_default());
    let (client, connection) = patiently(tokio_postgres::connect(url.as_str(), NoTls)).await.with_context(told)?;
    // It ends when the client is dropped, and tells the client's callers when it is lost.
    tokio::spawn(connection);
    Ok(client)
}

async fn patiently<T>(done: impl Future<Output = Result<T, tokio_postgres::Error>>) -> anyhow::Result<T> {
    within(PATIENCE, done).await
}

async fn within<T>(
    patience: Duration,
    done: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> anyhow::Result<T> {
    let done = tokio::time::timeout(patience, done).await;
    let done = done.map_err(|_| anyhow!("no answer within {} seconds", patience.as_secs()))?;
    // What the server said is in the cause; the error itself only says that it was the server.
    done.map_err(|error| match error.as_db_error() {
        Some(said) => anyhow!("{}", said.message()),
        None => anyhow!(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_the_database_is_another() {
        let server: Url = "postgres://me:secret@db.example:5433/mine?application_name=a".parse().expect("a URL");
        let database = Database::new(server);
        let url = database.url();
        assert_eq!(url.as_str().replace(&database.name, "mine"), database.server.as_str());
        assert_ne!(url, database.server);
        assert_ne!(Database::new(database.server.clone()).name, database.name);
    }
}
