//! The store that the configuration names, in all its parts.

use std::sync::Arc;

use anyhow::Context;
use punctual_core::breakers::Breakers;
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::coordinator::Coordinator;
use punctual_core::forecast::Forecast;
use punctual_core::ids::NodeId;
use punctual_core::obstacles::Obstacles;
use punctual_core::partitions::Partitions;
use punctual_core::queues::Queues;
use punctual_core::resolver::Resolver;
use punctual_core::retention::Retention;
use punctual_core::schedules::Schedules;
use punctual_core::store::Store;
use punctual_core::workers::Registry;
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
    /// The tasks.
    pub store: Arc<dyn Store>,
    /// The leases.
    pub coordinator: Arc<dyn Coordinator>,
    /// Who dispatches what.
    pub partitions: Arc<dyn Partitions>,
    /// What queues are set to.
    pub queues: Arc<dyn Queues>,
    /// The circuit breakers.
    pub breakers: Arc<dyn Breakers>,
    /// What keeps tasks from being claimed.
    pub obstacles: Arc<dyn Obstacles>,
    /// The recurring schedules.
    pub schedules: Arc<dyn Schedules>,
    /// What will be due.
    pub forecast: Arc<dyn Forecast>,
    /// The workers and nodes.
    pub registry: Arc<dyn Registry>,
    /// What removes what is over.
    pub retention: Arc<dyn Retention>,
    /// Who decides whose turn it is, and who has nothing left to wait for.
    pub resolver: Arc<dyn Resolver>,
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
                // The wall clock is the store's clock.
                skew: Arc::new(|| 0),
                store: Arc::clone(&store) as _,
                coordinator: Arc::clone(&store) as _,
                partitions: Arc::clone(&store) as _,
                queues: Arc::clone(&store) as _,
                breakers: Arc::clone(&store) as _,
                obstacles: Arc::clone(&store) as _,
                schedules: Arc::clone(&store) as _,
                forecast: Arc::clone(&store) as _,
                registry: Arc::clone(&store) as _,
                resolver: Arc::clone(&store) as _,
                retention: store,
                shared: None,
            })
        }
        StoreChoice::Postgres(url) => open_postgres(config, url, node).await,
    }
}

async fn open_postgres(config: &Config, url: &SecretUrl, node: NodeId) -> anyhow::Result<Opened> {
    let database = postgres::Database::connect(url.expose()).await?;
    let postgres_clock = Arc::new(PostgresClock::connect(url.expose()).await?);
    let clock: Arc<dyn Clock> = Arc::clone(&postgres_clock) as _;
    let applied = database.up(clock.now()).await.context("the schema could not be brought up to date")?;
    if !applied.is_empty() {
        tracing::info!(?applied, "the schema was brought up to date");
    }
    let standby = |url: &SecretUrl| ReadStore { url: url.expose().to_owned(), most_lag: config.read_store_lag };
    let options =
        postgres::Options { read_store: config.read_store.as_ref().map(standby), ..postgres::Options::default() };
    let store = PostgresStore::connect(url.expose(), Arc::clone(&clock), node, options).await?;
    let shared = Arc::new(store.clone());
    Ok(Opened {
        clock,
        skew: Arc::new(move || postgres_clock.skew_millis()),
        store: Arc::clone(&shared) as _,
        coordinator: Arc::clone(&shared) as _,
        partitions: Arc::clone(&shared) as _,
        queues: Arc::clone(&shared) as _,
        breakers: Arc::clone(&shared) as _,
        obstacles: Arc::clone(&shared) as _,
        schedules: Arc::clone(&shared) as _,
        forecast: Arc::clone(&shared) as _,
        registry: Arc::clone(&shared) as _,
        resolver: Arc::clone(&shared) as _,
        retention: shared,
        shared: Some(store),
    })
}
