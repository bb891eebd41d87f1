//! The gauge of tasks by state, counted on a scrape, at most every few seconds.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use punctual_core::queues::LiveCounts;
use punctual_core::state::State;
use punctual_core::store::Store;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Metrics, StateLabel};

/// How old a shown count may be.
const COUNT_AGE_MAX: Duration = Duration::from_secs(5);
/// How long a scrape waits for a count; then it shows the previous one. A scrape answers within 50
/// milliseconds, whatever there is.
const REFRESH_TIMEOUT: Duration = Duration::from_millis(30);

/// Keeps the gauge of tasks by state. One count runs at a time, however many scrapes come.
#[derive(Clone)]
pub struct TaskCounts {
    store: Arc<dyn Store>,
    gauge: Family<StateLabel, Gauge>,
    quarantined: Family<[(&'static str, &'static str); 0], Gauge>,
    last: Arc<Mutex<LastCount>>,
}

#[derive(Default)]
struct LastCount {
    counted_at: Option<Instant>,
    /// Closed when the running count ends.
    running: Option<watch::Receiver<()>>,
}

impl TaskCounts {
    /// Counts the tasks of `store`.
    pub fn new(store: Arc<dyn Store>, metrics: &Metrics) -> Self {
        Self { store, gauge: metrics.tasks.clone(), quarantined: metrics.quarantined.clone(), last: Arc::default() }
    }

    /// Returns once the gauge is fresh, or after a timeout.
    pub async fn refresh(&self) {
        let Some(mut running) = self.running() else { return };
        // The sender never sends: the channel closes when the count is done.
        drop(tokio::time::timeout(REFRESH_TIMEOUT, running.changed()).await);
    }

    /// The running count, started if need be; none if the last one is fresh.
    fn running(&self) -> Option<watch::Receiver<()>> {
        let mut last = self.last.lock();
        if let Some(running) = &last.running {
            return Some(running.clone());
        }
        if last.counted_at.is_some_and(|at| at.elapsed() < COUNT_AGE_MAX) {
            return None;
        }
        let (done, running) = watch::channel(());
        last.running = Some(running.clone());
        let counts = self.clone();
        // In a task of its own: a scrape that gives up must not stop the count for other scrapes.
        tokio::spawn(async move {
            counts.count().await;
            drop(done);
        });
        Some(running)
    }

    async fn count(&self) {
        match tokio::try_join!(self.store.live_counts(), self.store.quarantined()) {
            Ok((live, quarantined)) => {
                let LiveCounts { blocked, pending, queued, running } = live;
                let counts = [
                    (State::Blocked, blocked),
                    (State::Pending, pending),
                    (State::Queued, queued),
                    (State::Running, running),
                ];
                for (state, tasks) in counts {
                    let label = StateLabel { state: state.as_str() };
                    self.gauge.get_or_create(&label).set(i64::try_from(tasks).unwrap_or(i64::MAX));
                }
                self.quarantined.get_or_create(&[]).set(i64::try_from(quarantined).unwrap_or(i64::MAX));
            }
            // A missing number is better than an old one that looks new.
            Err(error) => {
                tracing::warn!(%error, "cannot count the tasks for the metrics; showing no counts");
                self.gauge.clear();
                self.quarantined.clear();
            }
        }
        let mut last = self.last.lock();
        last.counted_at = Some(Instant::now());
        last.running = None;
    }
}
