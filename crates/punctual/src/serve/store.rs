//! Opens the store that the configuration names.

use std::sync::Arc;

use anyhow::Context;
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::database::Database;
use punctual_core::ids::NodeId;
use punctual_leader::membership::Skew;
use punctual_store::ConnectionCounts;
use punctual_store::postgres::{self, PostgresClock, PostgresStore, ReadStore};
use punctual_store::sqlite::{self, SqliteStore};

use crate::config::{Config, SecretUrl, StoreChoice};

/// An open store.
pub struct OpenStore {
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// How far the wall clock of this machine is ahead of its time.
    pub skew: Skew,
    /// All of its ports.
    pub database: Arc<dyn Database>,
    /// The store itself, if nodes share it.
    pub postgres: Option<PostgresStore>,
    /// Its connections.
    pub connections: Arc<ConnectionCounts>,
}

/// Opens the store and brings its schema up to date.
pub async fn open(config: &Config, node: NodeId) -> anyhow::Result<OpenStore> {
    match &config.store {
        StoreChoice::Sqlite => {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let options = sqlite::Options { tenant_lanes: config.limits.tenant_lanes, ..Default::default() };
            let store = SqliteStore::open(&config.data, Arc::clone(&clock), node, options)?;
            Ok(OpenStore {
                clock,
                // The wall clock is the store's clock.
                skew: Arc::new(|| 0),
                connections: store.connections(),
                database: Arc::new(store),
                postgres: None,
            })
        }
        StoreChoice::Postgres(url) => open_postgres(config, url, node).await,
    }
}

async fn open_postgres(config: &Config, url: &SecretUrl, node: NodeId) -> anyhow::Result<OpenStore> {
    let migrator = postgres::Migrator::connect(url.expose()).await?;
    let postgres_clock = Arc::new(PostgresClock::connect(url.expose()).await?);
    let clock: Arc<dyn Clock> = Arc::clone(&postgres_clock) as _;
    let applied = migrator.up(clock.now()).await.context("cannot bring the schema up to date")?;
    if !applied.is_empty() {
        tracing::info!(?applied, "brought the schema up to date");
    }
    let standby = |url: &SecretUrl| ReadStore { url: url.expose().to_owned(), max_lag: config.read_store_lag };
    let read_store = config.read_store.as_ref().map(standby);
    let tenant_lanes = config.limits.tenant_lanes;
    let options = postgres::Options { read_store, tenant_lanes, ..postgres::Options::default() };
    let options = options.with_connections(config.store_connections);
    let store = PostgresStore::connect(url.expose(), Arc::clone(&clock), node, options).await?;
    Ok(OpenStore {
        clock,
        skew: Arc::new(move || postgres_clock.skew_millis()),
        connections: store.connections(),
        database: Arc::new(store.clone()),
        postgres: Some(store),
    })
}
