//! The pruner: removes old history, old idempotency keys, expired entries of the ledger, past
//! minutes of the forecast, nonces of signed requests, workers that were not seen for long, and
//! lanes that nothing names.
//!
//! The leader runs it in small steps with a pause after each, so that other writes wait only
//! briefly. Invariant: a step depends on the clock and the rows alone. So a former leader that
//! takes one more step does what its successor would do.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::clock::Clock;
use punctual_core::store::StoreError;
use punctual_core::upkeep::{Prunable, Upkeep};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The most rows of each kind that a step removes: a few milliseconds' work.
const STEP_ROWS_MAX: usize = 100;

/// The shortest pause between two steps. A pause is as long as its step took, so that the pruner
/// uses at most half of the time.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// How long things are kept, and how often the pruner looks.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long a task is kept after it finished; none means forever.
    pub history: Option<Duration>,
    /// How long an idempotency key is kept after it was used; none means forever.
    pub keys: Option<Duration>,
    /// How long a worker is listed after it was last seen; none means forever.
    pub workers: Option<Duration>,
    /// The pause when nothing is left to remove.
    pub interval: Duration,
    /// How often it scans all keys: there may be many, and they live for days.
    pub keys_interval: Duration,
    /// The time between two rounds over all lanes. The second one that finds a lane empty removes
    /// it.
    pub lanes_interval: Duration,
}

/// The pruner (see the module).
pub struct Pruner {
    upkeep: Arc<dyn Upkeep>,
    clock: Arc<dyn Clock>,
    config: Config,
    /// When the keys are scanned next.
    keys_at: Mutex<Instant>,
    /// When the next round over the lanes begins, or the current one continues.
    lanes_at: Mutex<Instant>,
}

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Tasks that were removed, as far as they were counted.
    pub tasks: u64,
    /// Idempotency keys that are free again.
    pub keys: u64,
    /// Entries of the ledger that were removed.
    pub ledger: u64,
    /// Counts of past minutes that were removed.
    pub minutes: u64,
    /// Workers that are no longer listed.
    pub workers: u64,
    /// Lanes that were removed.
    pub lanes: u64,
    /// Whether there may be more.
    pub more: bool,
}

impl Report {
    fn is_empty(&self) -> bool {
        // Minutes pass whatever happens: not worth a log line.
        (self.tasks, self.keys, self.ledger, self.workers, self.lanes) == (0, 0, 0, 0, 0)
    }

    fn add(&mut self, other: Self) {
        self.tasks += other.tasks;
        self.keys += other.keys;
        self.ledger += other.ledger;
        self.minutes += other.minutes;
        self.workers += other.workers;
        self.lanes += other.lanes;
    }
}

impl Pruner {
    /// Prunes by the time of `clock`.
    pub fn new(upkeep: Arc<dyn Upkeep>, clock: Arc<dyn Clock>, config: Config) -> Self {
        let now = Instant::now();
        Self { upkeep, clock, config, keys_at: Mutex::new(now), lanes_at: Mutex::new(now) }
    }

    /// Prunes until `shutdown` is cancelled.
    pub async fn run(&self, shutdown: CancellationToken) {
        let mut removed = Report::default();
        while !shutdown.is_cancelled() {
            let begun = Instant::now();
            let pause = match self.run_once().await {
                Ok(report) => {
                    removed.add(report);
                    if report.more { begun.elapsed().max(PAUSE_MIN) } else { self.config.interval }
                }
                Err(error) => {
                    tracing::warn!(error = %error, "cannot prune old data; retrying after the usual interval");
                    self.config.interval
                }
            };
            if pause == self.config.interval && !removed.is_empty() {
                let Report { tasks, keys, ledger, minutes, workers, lanes, .. } = std::mem::take(&mut removed);
                tracing::info!(tasks, keys, ledger, minutes, workers, lanes, "pruned old data");
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// One step of each kind.
    pub async fn run_once(&self) -> Result<Report, StoreError> {
        let now = self.clock.now();
        let mut report = Report::default();
        if let Some(kept) = self.config.history {
            let pruned = self.upkeep.prune(Prunable::History, now.minus(kept), STEP_ROWS_MAX).await?;
            report.tasks = pruned.removed;
            report.more |= pruned.more;
        }
        if let Some(kept) = self.config.keys
            && *self.keys_at.lock() <= Instant::now()
        {
            let pruned = self.upkeep.prune(Prunable::Keys, now.minus(kept), STEP_ROWS_MAX).await?;
            report.keys = pruned.removed;
            report.more |= pruned.more;
            if !pruned.more {
                *self.keys_at.lock() = Instant::now() + self.config.keys_interval;
            }
        }
        let pruned = self.upkeep.prune(Prunable::Ledger, now, STEP_ROWS_MAX).await?;
        report.ledger = pruned.removed;
        report.more |= pruned.more;
        let pruned = self.upkeep.prune(Prunable::Forecast, now, STEP_ROWS_MAX).await?;
        report.minutes = pruned.removed;
        report.more |= pruned.more;
        report.more |= self.upkeep.prune(Prunable::Nonces, now, STEP_ROWS_MAX).await?.more;
        if let Some(kept) = self.config.workers {
            report.workers = self.upkeep.prune(Prunable::Workers, now.minus(kept), STEP_ROWS_MAX).await?.removed;
        }
        if *self.lanes_at.lock() <= Instant::now() {
            let pruned = self.upkeep.prune(Prunable::Lanes, now, STEP_ROWS_MAX).await?;
            report.lanes = pruned.removed;
            report.more |= pruned.more;
            if !pruned.more {
                *self.lanes_at.lock() = Instant::now() + self.config.lanes_interval;
            }
        }
        Ok(report)
    }
}
