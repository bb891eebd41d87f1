//! The store that the configuration names, in all its parts.

use std::sync::Arc;

use anyhow::Context;
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::coordinator::Coordinator;
use punctual_core::ids::NodeId;
use punctual_core::store::Store;
use punctual_core::workers::Registry;
use punctual_store::postgres::{self, PostgresClock, PostgresStore};
use punctual_store::sqlite::{self, SqliteStore};

use crate::config::{Config, SecretUrl, StoreChoice};

/// An open store.
pub struct Opened {
    /// Its time.
    pub clock: Arc<dyn Clock>,
    /// The tasks.
    pub store: Arc<dyn Store>,
    /// The leases.
    pub coordinator: Arc<dyn Coordinator>,
    /// The workers and nodes.
    pub registry: Arc<dyn Registry>,
    /// What only a store that nodes share has to do.
    pub shared: Option<PostgresStore>,
}

/// Opens the store, and brings its schema up to date.
pub async fn open(config: &Config, node: NodeId) -> anyhow::Result<Opened> {
    match &config.store {
        StoreChoice::Sqlite => {
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let store = SqliteStore::open(&config.data, Arc::clone(&clock), node, sqlite::Options::default())?;
            let store = Arc::new(store);
            Ok(Opened {
                clock,
                store: Arc::clone(&store) as _,
                coordinator: Arc::clone(&store) as _,
                registry: store,
                shared: None,
            })
        }
        StoreChoice::Postgres(url) => open_postgres(url, node).await,
    }
}

async fn open_postgres(url: &SecretUrl, node: NodeId) -> anyhow::Result<Opened> {
    let database = postgres::Database::connect(url.expose()).await?;
    let clock: Arc<dyn Clock> = Arc::new(PostgresClock::connect(url.expose()).await?);
    let applied = database.up(clock.now()).await.context("the schema could not be brought up to date")?;
    if !applied.is_empty() {
        tracing::info!(?applied, "the schema was brought up to date");
    }
    let options = postgres::Options::default();
    let store = PostgresStore::connect(url.expose(), Arc::clone(&clock), node, options).await?;
    let shared = Arc::new(store.clone());
    Ok(Opened {
        clock,
        store: Arc::clone(&shared) as _,
        coordinator: Arc::clone(&shared) as _,
        registry: shared,
        shared: Some(store),
    })
}
