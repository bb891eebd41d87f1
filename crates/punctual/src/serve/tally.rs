//! Carries the counters of the worker and the state of the node over to the metrics, once a second.
//!
//! `running` starts it. It also logs when the machine's clock goes wrong, and when it is right
//! again.

use std::sync::Arc;
use std::time::Duration;

use punctual_api::metrics::Metrics;
use punctual_core::clock::Clock;
use punctual_core::run_end::RunEnd;
use punctual_leader::membership::Skew;
use punctual_scheduler::breakers::Circuits;
use punctual_scheduler::fairness::{Band, LongestWaits};
use punctual_scheduler::ownership::OwnedPartitions;
use punctual_store::postgres::PostgresStore;
use punctual_submission::KnownQueues;
use punctual_worker::WorkerStats;
use tokio_util::sync::CancellationToken;

use super::parts::Parts;

/// A clock that differs by less is not reported: that is usual, and may be the network's delay.
const NOTABLE_SKEW_MILLIS: u64 = 1_000;

/// See the module.
pub struct Tally {
    metrics: Metrics,
    stats: Arc<WorkerStats>,
    owned: Arc<OwnedPartitions>,
    queues: KnownQueues,
    circuits: Arc<Circuits>,
    waits: Arc<LongestWaits>,
    clock: Arc<dyn Clock>,
    skew: Skew,
    wrong_clock: WrongClock,
    shared: Option<PostgresStore>,
    seen: [u64; RunEnd::ALL.len()],
}

impl Tally {
    /// From the node's parts to their metrics.
    pub fn new(parts: &Parts) -> Self {
        Self {
            metrics: parts.metrics.clone(),
            stats: Arc::clone(&parts.worker_stats),
            owned: Arc::clone(&parts.owned),
            queues: parts.known_queues.clone(),
            circuits: Arc::clone(&parts.circuits),
            waits: Arc::clone(&parts.waits),
            clock: Arc::clone(&parts.clock),
            skew: Arc::clone(&parts.skew),
            wrong_clock: WrongClock::default(),
            shared: parts.shared.clone(),
            seen: Default::default(),
        }
    }

    /// Carries over until told to stop.
    pub async fn run(mut self, stop: CancellationToken) {
        self.carry_over();
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            self.carry_over();
        }
    }

    fn carry_over(&mut self) {
        self.metrics.partitions_owned.set(i64::try_from(self.owned.partitions()).unwrap_or(i64::MAX));
        let skew_ms = (self.skew)();
        self.metrics.clock_skew(skew_ms);
        match self.wrong_clock.news(skew_ms) {
            Some(true) => tracing::warn!(
                skew_ms,
                "the clock of this machine differs from the database's, which decides what is due; set it right"
            ),
            Some(false) => tracing::info!(skew_ms, "the clock of this machine is right again"),
            None => {}
        }
        let (paused, limited) = self.queues.restricted(self.clock.now());
        self.metrics.queues_paused.set(i64::try_from(paused).unwrap_or(i64::MAX));
        self.metrics.queues_limited.set(i64::try_from(limited).unwrap_or(i64::MAX));
        self.metrics.breakers_open.set(i64::try_from(self.circuits.open().len()).unwrap_or(i64::MAX));
        let opened = self.circuits.opened();
        self.metrics.breaker_opened.inc_by(opened - self.metrics.breaker_opened.get());
        for band in Band::ALL {
            self.metrics.longest_wait(band.as_str(), self.waits.longest(band, self.clock.now()));
        }
        self.metrics.read_store_lag(self.shared.as_ref().and_then(PostgresStore::read_store_lag));
        self.metrics.webhooks_in_flight.set(i64::try_from(self.stats.in_flight()).unwrap_or(i64::MAX));
        for end in RunEnd::ALL {
            let ended = self.stats.ended(end);
            let seen = std::mem::replace(&mut self.seen[end as usize], ended);
            self.metrics.settled(end.metric_label(), ended - seen);
        }
    }
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
