//! Opens the store that the configuration names.

use std::sync::Arc;

use anyhow::Context;
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::database::Database;
use punctual_core::ids::NodeId;
use punctual_leader::membership::Skew;
use punctual_store::postgres::{self, PostgresClock, PostgresStore, ReadStore};
use punctual_store::sqlite::{self, SqliteStore};

use crate::config::{Config, SecretUrl, StoreChoice};

/// An open store.
pub struct Opened {
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// How far the wall clock of this machine is ahead of that.
    pub skew: Skew,
    /// All of its ports.
    pub database: Arc<dyn Database>,
    /// What only a store that nodes share has to do.
    pub shared: Option<PostgresStore>,
}

/// Opens the store, and brings its schema up to date.
pub async fn open(config: &Config, node: NodeId) -> anyhow::Result<Opened> {
    match &config.store {
        StoreChoice::Sqlite => {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let store = SqliteStore::open(&config.data, Arc::clone(&clock), node, sqlite::Options::default())?;
            Ok(Opened {
                clock,
                // The wall clock is the store's clock.
                skew: Arc::new(|| 0),
                database: Arc::new(store),
                shared: None,
            })
        }
        StoreChoice::Postgres(url) => open_postgres(config, url, node).await,
    }
}

async fn open_postgres(config: &Config, url: &SecretUrl, node: NodeId) -> anyhow::Result<Opened> {
    let database = postgres::Migrator::connect(url.expose()).await?;
    let postgres_clock = Arc::new(PostgresClock::connect(url.expose()).await?);
    let clock: Arc<dyn Clock> = Arc::clone(&postgres_clock) as _;
    let applied = database.up(clock.now()).await.context("the schema could not be brought up to date")?;
    if !applied.is_empty() {
        tracing::info!(?applied, "the schema was brought up to date");
    }
    let standby = |url: &SecretUrl| ReadStore { url: url.expose().to_owned(), max_lag: config.read_store_lag };
    let options =
        postgres::Options { read_store: config.read_store.as_ref().map(standby), ..postgres::Options::default() };
    let store = PostgresStore::connect(url.expose(), Arc::clone(&clock), node, options).await?;
    Ok(Opened {
        clock,
        skew: Arc::new(move || postgres_clock.skew_millis()),
        database: Arc::new(store.clone()),
        shared: Some(store),
    })
}
