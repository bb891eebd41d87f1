//! Whether this node can serve: the store, the broker, the migrations.
//!
//! Asked by load balancers through `/readyz`, as often as they like: an answer is kept for a
//! second and one check runs at a time, so that asking cannot load the store.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use punctual_client::health::{Check, Checks};
use punctual_core::store::Store;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long an answer is kept.
const FRESH: Duration = Duration::from_secs(1);
/// How long a check may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Something that can be asked whether it works. The error says why not, for the log.
pub type Probe = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// A probe that runs `check`.
pub fn probe<F, E>(check: impl Fn() -> F + Send + Sync + 'static) -> Probe
where
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display,
{
    Arc::new(move || {
        let checking = check();
        Box::pin(async move { checking.await.map_err(|error| error.to_string()) })
    })
}

/// What readiness asks besides the store; none counts as working.
#[derive(Clone, Default)]
pub struct Probes {
    /// Whether the broker answers.
    pub broker: Option<Probe>,
    /// Whether the store's schema is the one this version needs.
    pub migrations: Option<Probe>,
}

/// Tells whether this node can serve.
pub struct Readiness {
    store: Arc<dyn Store>,
    probes: Probes,
    last: Mutex<Option<(Instant, Checks)>>,
}

impl Readiness {
    /// Asks `store` and `probes`.
    pub fn new(store: Arc<dyn Store>, probes: Probes) -> Self {
        Self { store, probes, last: Mutex::new(None) }
    }

    /// How each part does, at most a second ago.
    pub async fn checks(&self) -> Checks {
        let mut last = self.last.lock().await;
        if let Some((at, checks)) = &*last
            && at.elapsed() < FRESH
        {
            return checks.clone();
        }
        let store = async { self.store.check().await.map_err(|error| error.to_string()) };
        let (store, broker, migrations) = tokio::join!(
            verdict("store", store),
            verdict("broker", ask(self.probes.broker.as_ref())),
            verdict("migrations", ask(self.probes.migrations.as_ref())),
        );
        let checks = Checks { store, broker, migrations };
        *last = Some((Instant::now(), checks.clone()));
        checks
    }
}

async fn ask(probe: Option<&Probe>) -> Result<(), String> {
    match probe {
        Some(probe) => probe().await,
        None => Ok(()),
    }
}

async fn verdict(part: &'static str, check: impl Future<Output = Result<(), String>>) -> Check {
    let result = tokio::time::timeout(PATIENCE, check).await.unwrap_or_else(|_| Err("no answer in time".to_owned()));
    match result {
        Ok(()) => Check::Ok,
        Err(error) => {
            tracing::warn!(part, error, "a readiness check failed");
            Check::Failed
        }
    }
}
