//! Whether this node can serve: the store, the broker, the migrations.
//!
//! Load balancers ask through `/readyz`, as often as they like. A result is kept for a second and
//! one check runs at a time, so that the questions cannot load the store.

use std::fmt::Display;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use punctual_client::health::{Check, Checks};
use punctual_core::store::Store;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long a result is kept.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// How long a check may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// A check of one part of the node. The error says why it fails, for the log.
pub type ReadinessProbe = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync>;

/// A probe that runs `check`.
pub fn probe<F, E>(check: impl Fn() -> F + Send + Sync + 'static) -> ReadinessProbe
where
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display,
{
    Arc::new(move || {
        let checking = check();
        Box::pin(async move { checking.await.map_err(|error| error.to_string()) })
    })
}

/// The checks besides that of the store; a missing one counts as passed.
#[derive(Clone, Default)]
pub struct Probes {
    /// Whether the broker answers.
    pub broker: Option<ReadinessProbe>,
    /// Whether the store's schema is the one this version needs.
    pub migrations: Option<ReadinessProbe>,
}

/// The readiness of this node.
pub struct ReadinessChecker {
    store: Arc<dyn Store>,
    probes: Probes,
    last: Mutex<Option<(Instant, Checks)>>,
}

impl ReadinessChecker {
    /// Checks `store` and `probes`.
    pub fn new(store: Arc<dyn Store>, probes: Probes) -> Self {
        Self { store, probes, last: Mutex::new(None) }
    }

    /// The result of each check, at most a second old.
    pub async fn checks(&self) -> Checks {
        let mut last = self.last.lock().await;
        if let Some((at, checks)) = &*last
            && at.elapsed() < KEPT_FOR
        {
            return checks.clone();
        }
        let store = async { self.store.check().await.map_err(|error| error.to_string()) };
        let (store, broker, migrations) = tokio::join!(
            outcome_of("store", store),
            outcome_of("broker", ask(self.probes.broker.as_ref())),
            outcome_of("migrations", ask(self.probes.migrations.as_ref())),
        );
        let checks = Checks { store, broker, migrations };
        *last = Some((Instant::now(), checks.clone()));
        checks
    }
}

async fn ask(probe: Option<&ReadinessProbe>) -> Result<(), String> {
    match probe {
        Some(probe) => probe().await,
        None => Ok(()),
    }
}

async fn outcome_of(part: &'static str, check: impl Future<Output = Result<(), String>>) -> Check {
    let result =
        tokio::time::timeout(CHECK_TIMEOUT, check).await.unwrap_or_else(|_| Err("no answer in time".to_owned()));
    match result {
        Ok(()) => Check::Ok,
        Err(error) => {
            tracing::warn!(part, error, "a readiness check failed; this node reports that it is not ready");
            Check::Failed
        }
    }
}
