//! How many tasks the limits of a queue let a claim take. Pure; the claims of both stores call it.
//!
//! A claim makes an [`Allowance`] for each limited queue, in its own transaction and under the
//! queue's lock. It never takes more tasks than the allowance has left.

use punctual_core::lane::LaneId;
use punctual_core::queues::{Bucket, Queue, RateLimit};
use punctual_core::store::{LimitKind, LimitedLane};
use punctual_core::time::Timestamp;

/// The limits of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueLimits {
    pub max_concurrency: Option<u64>,
    /// How many tasks of one concurrency key may be held.
    pub max_per_key: Option<u64>,
    /// The rate, and the bucket once a claim has taken from it.
    pub rate: Option<(RateLimit, Option<Bucket>)>,
    pub pause: Option<PauseEnd>,
}

/// A pause, and the instant at which it ends by itself, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PauseEnd(pub Option<Timestamp>);

/// How many tasks of a queue one transaction may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    left: usize,
    bottleneck: Bottleneck,
    rate: Option<(RateLimit, Bucket)>,
    taken: usize,
}

/// The limit that applies when nothing is left.
#[derive(Clone, Copy, Debug)]
enum Bottleneck {
    Paused(Option<Timestamp>),
    Full,
    Rate,
    Never,
}

impl QueueLimits {
    /// The limits of a queue whose bucket is full.
    pub(crate) fn of(queue: &Queue) -> Self {
        Self {
            max_concurrency: queue.settings.max_concurrency.map(u64::from),
            max_per_key: queue.settings.max_per_key.map(u64::from),
            rate: queue.settings.rate_limit.map(|limit| (limit, None)),
            pause: queue.pause.as_ref().map(|pause| PauseEnd(pause.until)),
        }
    }

    /// The allowance at `now`, while `running` tasks are held.
    pub(crate) fn allow(&self, running: u64, now: Timestamp) -> Allowance {
        let rate = self.rate.map(|(limit, bucket)| {
            let bucket = bucket.unwrap_or_else(|| limit.full(now));
            (limit, limit.refill(bucket, now))
        });
        if let Some(PauseEnd(until)) = self.pause
            && until.is_none_or(|until| until > now)
        {
            return Allowance { left: 0, bottleneck: Bottleneck::Paused(until), rate, taken: 0 };
        }
        let places =
            self.max_concurrency.map(|most| usize::try_from(most.saturating_sub(running)).unwrap_or(usize::MAX));
        let tokens = rate.map(|(_, bucket)| bucket.whole());
        let (left, bottleneck) = match (places, tokens) {
            (Some(places), Some(tokens)) if tokens < places => (tokens, Bottleneck::Rate),
            (Some(places), _) => (places, Bottleneck::Full),
            (None, Some(tokens)) => (tokens, Bottleneck::Rate),
            (None, None) => (usize::MAX, Bottleneck::Never),
        };
        Allowance { left, bottleneck, rate, taken: 0 }
    }
}

impl Allowance {
    /// How many more tasks may be taken.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Counts tasks that were taken.
    pub(crate) fn take(&mut self, tasks: usize) {
        debug_assert!(tasks <= self.left, "a claim takes no more than its allowance");
        if !matches!(self.bottleneck, Bottleneck::Never) {
            self.left = self.left.saturating_sub(tasks);
        }
        self.taken += tasks;
    }

    /// The bucket, if anything was taken from it.
    pub(crate) fn bucket(&self) -> Option<Bucket> {
        self.rate.filter(|_| self.taken > 0).map(|(_, bucket)| bucket.take(self.taken))
    }

    /// The answer about a lane of the queue, if nothing is left.
    pub(crate) fn limited(&self, lane: LaneId) -> Option<LimitedLane> {
        if self.left > 0 {
            return None;
        }
        let (by, until) = match self.bottleneck {
            Bottleneck::Paused(until) => (LimitKind::Pause, until),
            Bottleneck::Full => (LimitKind::Concurrency, None),
            Bottleneck::Rate => (LimitKind::Rate, self.rate.map(|(limit, bucket)| limit.next(bucket.take(self.taken)))),
            Bottleneck::Never => return None,
        };
        Some(LimitedLane { lane, by, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn held(allowance: &Allowance) -> Option<(LimitKind, Option<i64>)> {
        allowance.limited(LaneId::new(1)).map(|held| (held.by, held.until.map(Timestamp::as_millis)))
    }

    #[test]
    fn the_narrowest_limit_holds() {
        let limit = RateLimit { per_second: 10.0, burst: 2 };
        let limits = QueueLimits { max_concurrency: Some(3), rate: Some((limit, None)), ..QueueLimits::default() };
        let mut allowance = limits.allow(0, at(0));
        assert_eq!((allowance.left(), held(&allowance)), (2, None));
        allowance.take(2);
        assert_eq!((allowance.left(), held(&allowance)), (0, Some((LimitKind::Rate, Some(100)))));
        let mut allowance = limits.allow(2, at(0));
        allowance.take(1);
        assert_eq!(held(&allowance), Some((LimitKind::Concurrency, None)));
        assert!((allowance.bucket().expect("one was taken").tokens - 1.0).abs() < 1e-9);
        assert_eq!(limits.allow(9, at(0)).left(), 0);
        assert_eq!(limits.allow(9, at(0)).bucket(), None);
    }

    #[test]
    fn a_pause_holds_until_its_end() {
        let limits = QueueLimits { pause: Some(PauseEnd(Some(at(10)))), ..QueueLimits::default() };
        assert_eq!(held(&limits.allow(0, at(9))), Some((LimitKind::Pause, Some(10))));
        assert_eq!(limits.allow(0, at(10)).left(), usize::MAX);
        let limits = QueueLimits { pause: Some(PauseEnd(None)), ..QueueLimits::default() };
        assert_eq!(held(&limits.allow(0, at(9))), Some((LimitKind::Pause, None)));
    }
}
