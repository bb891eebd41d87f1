//! Removes what is over: tasks that came to rest long ago, idempotency keys that nobody can be
//! retrying any more, entries of the workers' ledger that have expired, minutes of the forecast
//! that are past, and workers that nobody has seen for long.
//!
//! The leader runs it, in small steps with a pause after each, so that nobody who works waits for
//! long. What is removed depends on the clock and on the rows alone: a leader of the past that
//! takes another step does what its successor would.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::clock::Clock;
use punctual_core::store::StoreError;
use punctual_core::upkeep::{Prunable, Upkeep};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How much a step removes at the most, of each kind: a few milliseconds' work.
const STEP: usize = 100;

/// The least pause after a step that was not the last. It is as long as the step took, so that half
/// of the time is the others'.
const PAUSE: Duration = Duration::from_millis(10);

/// How long what is over is kept, and how often it is looked for.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long a task is kept after it came to rest; none means for ever.
    pub history: Option<Duration>,
    /// How long an idempotency key is kept after it was used; none means for ever.
    pub keys: Option<Duration>,
    /// How long a worker is listed after it was last seen; none means for ever.
    pub workers: Option<Duration>,
    /// How often it is looked whether something is over.
    pub interval: Duration,
    /// How often all keys are looked at: there may be many, and they live for days.
    pub keys_interval: Duration,
}

/// See the module.
pub struct Pruner {
    upkeep: Arc<dyn Upkeep>,
    clock: Arc<dyn Clock>,
    config: Config,
    /// When the keys are looked at next.
    keys_at: Mutex<Instant>,
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
    /// Workers that are not listed any more.
    pub workers: u64,
    /// Whether there may be more.
    pub more: bool,
}

impl Report {
    fn is_empty(&self) -> bool {
        // Minutes pass whatever happens: nobody wants to read that.
        (self.tasks, self.keys, self.ledger, self.workers) == (0, 0, 0, 0)
    }

    fn add(&mut self, other: Self) {
        self.tasks += other.tasks;
        self.keys += other.keys;
        self.ledger += other.ledger;
        self.minutes += other.minutes;
        self.workers += other.workers;
    }
}

impl Pruner {
    /// Removes what is over by `clock`.
    pub fn new(upkeep: Arc<dyn Upkeep>, clock: Arc<dyn Clock>, config: Config) -> Self {
        Self { upkeep, clock, config, keys_at: Mutex::new(Instant::now()) }
    }

    /// Removes until told to stop.
    pub async fn run(&self, shutdown: CancellationToken) {
        let mut removed = Report::default();
        while !shutdown.is_cancelled() {
            let begun = Instant::now();
            let pause = match self.run_once().await {
                Ok(report) => {
                    removed.add(report);
                    if report.more { begun.elapsed().max(PAUSE) } else { self.config.interval }
                }
                Err(error) => {
                    tracing::warn!(error = %error, "what is over could not be removed");
                    self.config.interval
                }
            };
            if pause == self.config.interval && !removed.is_empty() {
                let Report { tasks, keys, ledger, minutes, workers, .. } = std::mem::take(&mut removed);
                tracing::info!(tasks, keys, ledger, minutes, workers, "removed what is over");
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
            let pruned = self.upkeep.prune(Prunable::History, now.minus(kept), STEP).await?;
            report.tasks = pruned.removed;
            report.more |= pruned.more;
        }
        if let Some(kept) = self.config.keys
            && *self.keys_at.lock() <= Instant::now()
        {
            let pruned = self.upkeep.prune(Prunable::Keys, now.minus(kept), STEP).await?;
            report.keys = pruned.removed;
            report.more |= pruned.more;
            if !pruned.more {
                *self.keys_at.lock() = Instant::now() + self.config.keys_interval;
            }
        }
        let pruned = self.upkeep.prune(Prunable::Ledger, now, STEP).await?;
        report.ledger = pruned.removed;
        report.more |= pruned.more;
        let pruned = self.upkeep.prune(Prunable::Forecast, now, STEP).await?;
        report.minutes = pruned.removed;
        report.more |= pruned.more;
        if let Some(kept) = self.config.workers {
            report.workers = self.upkeep.prune(Prunable::Workers, now.minus(kept), STEP).await?.removed;
        }
        Ok(report)
    }
}
