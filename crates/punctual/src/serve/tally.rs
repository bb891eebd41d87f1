//! Copies the worker's counters and the node's state to the metrics, once a second.
//!
//! It also logs when the machine's clock goes wrong, and when it is right again.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::run_end::RunEnd;
use punctual_scheduler::fairness::Band;
use punctual_store::postgres::PostgresStore;
use tokio_util::sync::CancellationToken;

use super::groups::Groups;
use super::parts::NodeParts;

const TALLY_INTERVAL: Duration = Duration::from_secs(1);

/// A clock that differs by less is not reported: that is usual, and may be the network's delay.
const NOTABLE_SKEW_MILLIS: u64 = 1_000;

/// Starts the loop.
pub fn start(groups: &mut Groups, parts: &Arc<NodeParts>) {
    let tally = Tally { parts: Arc::clone(parts), wrong_clock: WrongClock::default(), seen: Default::default() };
    groups.http.spawn("tally", |stop| tally.run(stop));
}

struct Tally {
    parts: Arc<NodeParts>,
    wrong_clock: WrongClock,
    /// The ends of runs that the metrics have counted.
    seen: [u64; RunEnd::ALL.len()],
}

impl Tally {
    async fn run(mut self, stop: CancellationToken) {
        self.run_once();
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(TALLY_INTERVAL) => {}
            }
            self.run_once();
        }
    }

    fn run_once(&mut self) {
        let NodeParts { metrics, clock, circuits, worker_stats, .. } = &*self.parts;
        let now = clock.now();
        metrics.partitions_owned.set(gauge(self.parts.owned.partitions()));
        let (paused, limited) = self.parts.queue_cache.restricted(now);
        metrics.queues_paused.set(gauge(paused));
        metrics.queues_limited.set(gauge(limited));
        metrics.breakers_open.set(gauge(circuits.open().len()));
        metrics.breaker_opened.inc_by(circuits.opened() - metrics.breaker_opened.get());
        for band in Band::ALL {
            metrics.longest_wait(band.as_str(), self.parts.waits.longest(band, now));
        }
        metrics.read_store_lag(self.parts.postgres.as_ref().and_then(PostgresStore::read_store_lag));
        metrics.store.connections.set(gauge(self.parts.connections.open()));
        metrics.store.connections_in_use.set(gauge(self.parts.connections.in_use()));
        metrics.webhooks_in_flight.set(gauge(worker_stats.in_flight()));
        for end in RunEnd::ALL {
            let ended = worker_stats.ended(end);
            let seen = std::mem::replace(&mut self.seen[end as usize], ended);
            metrics.settled(end.metric_label(), ended - seen);
        }
        let skew_ms = (self.parts.skew)();
        metrics.clock_skew(skew_ms);
        match self.wrong_clock.news(skew_ms) {
            Some(true) => tracing::warn!(
                skew_ms,
                "the clock of this machine differs from the database's, which decides what is due; set it right"
            ),
            Some(false) => tracing::info!(skew_ms, "the clock of this machine is right again"),
            None => {}
        }
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Whether the clock was last reported as wrong.
#[derive(Default)]
struct WrongClock(bool);

impl WrongClock {
    /// Whether the clock has become wrong (true) or right (false); none if nothing changed. It is
    /// right only at half the limit, so that a clock at the limit is not reported again and again.
    fn news(&mut self, skew_millis: i64) -> Option<bool> {
        let bound = if self.0 { NOTABLE_SKEW_MILLIS / 2 } else { NOTABLE_SKEW_MILLIS };
        let is_wrong = skew_millis.unsigned_abs() >= bound;
        (std::mem::replace(&mut self.0, is_wrong) != is_wrong).then_some(is_wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_is_reported_once_until_it_is_right() {
        let mut clock = WrongClock::default();
        let news: Vec<_> = [0, 999, -1_000, -1_200, 999, 500, 499, 0, 3_600_000].map(|skew| clock.news(skew)).into();
        let (no, wrong, right) = (None, Some(true), Some(false));
        assert_eq!(news, [no, no, wrong, no, no, no, right, no, wrong]);
    }
}
