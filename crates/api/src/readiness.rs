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

/// A check of one part of the node.
pub type ReadinessProbe = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), ProbeFault>> + Send>> + Send + Sync>;

/// Why a check did not pass, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeFault {
    /// The part does not work.
    Failed(String),
    /// It could not be asked, which is not its own fault if the store cannot be reached.
    NoAnswer(String),
}

impl ProbeFault {
    fn why(&self) -> &str {
        let (Self::Failed(why) | Self::NoAnswer(why)) = self;
        why
    }
}

/// A probe that runs `check`, whose errors mean that the part does not work.
pub fn probe<F, E>(check: impl Fn() -> F + Send + Sync + 'static) -> ReadinessProbe
where
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display,
{
    Arc::new(move || {
        let checking = check();
        Box::pin(async move { checking.await.map_err(|error| ProbeFault::Failed(error.to_string())) })
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
        let store = async { self.store.check().await.map_err(|error| ProbeFault::Failed(error.to_string())) };
        let (store, broker, migrations) = tokio::join!(
            in_time(store),
            in_time(ask(self.probes.broker.as_ref())),
            in_time(ask(self.probes.migrations.as_ref())),
        );
        let is_away = store.is_err();
        let checks = Checks {
            store: outcome_of("store", store),
            broker: outcome_of("broker", broker),
            migrations: match migrations {
                Err(ProbeFault::NoAnswer(_)) if is_away => Check::Unknown,
                migrations => outcome_of("migrations", migrations),
            },
        };
        *last = Some((Instant::now(), checks.clone()));
        checks
    }
}

async fn ask(probe: Option<&ReadinessProbe>) -> Result<(), ProbeFault> {
    match probe {
        Some(probe) => probe().await,
        None => Ok(()),
    }
}

async fn in_time(check: impl Future<Output = Result<(), ProbeFault>>) -> Result<(), ProbeFault> {
    let checked = tokio::time::timeout(CHECK_TIMEOUT, check).await;
    checked.unwrap_or_else(|_| Err(ProbeFault::NoAnswer("no answer in time".to_owned())))
}

fn outcome_of(part: &'static str, result: Result<(), ProbeFault>) -> Check {
    match result {
        Ok(()) => Check::Ok,
        Err(fault) => {
            let error = fault.why();
            tracing::warn!(part, error, "a readiness check failed; this node reports that it is not ready");
            Check::Failed
        }
    }
}
