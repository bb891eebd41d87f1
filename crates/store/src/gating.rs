//! What the limits of a queue let through, whatever the database. Pure.
//!
//! A claim makes an [`Opening`] of each restricted queue, in its own transaction and under the
//! queue's lock, and takes no more through it than it lets.

use punctual_core::lane::LaneId;
use punctual_core::queues::{Bucket, Queue, RateLimit};
use punctual_core::store::{HeldBack, Restraint};
use punctual_core::time::Timestamp;

/// The limits of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gate {
    pub max_concurrency: Option<u64>,
    /// The rate, and the bucket if somebody has taken from it.
    pub rate: Option<(RateLimit, Option<Bucket>)>,
    pub pause: Option<Closed>,
}

/// It is paused; until when, if there is an end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed(pub Option<Timestamp>);

/// How many tasks of a queue a transaction may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opening {
    left: usize,
    held: Held,
    rate: Option<(RateLimit, Bucket)>,
    taken: usize,
}

/// What holds the queue when nothing is left.
#[derive(Clone, Copy, Debug)]
enum Held {
    Paused(Option<Timestamp>),
    Full,
    Rate,
    Never,
}

impl Gate {
    /// The gate of a queue without anything taken from its bucket.
    pub(crate) fn of(queue: &Queue) -> Self {
        Self {
            max_concurrency: queue.settings.max_concurrency.map(u64::from),
            rate: queue.settings.rate_limit.map(|limit| (limit, None)),
            pause: queue.pause.as_ref().map(|pause| Closed(pause.until)),
        }
    }

    /// What it lets through at `now`, with `running` tasks in hands.
    pub(crate) fn open(&self, running: u64, now: Timestamp) -> Opening {
        let rate = self.rate.map(|(limit, bucket)| {
            let bucket = bucket.unwrap_or_else(|| limit.full(now));
            (limit, limit.refill(bucket, now))
        });
        if let Some(Closed(until)) = self.pause
            && until.is_none_or(|until| until > now)
        {
            return Opening { left: 0, held: Held::Paused(until), rate, taken: 0 };
        }
        let places =
            self.max_concurrency.map(|most| usize::try_from(most.saturating_sub(running)).unwrap_or(usize::MAX));
        let tokens = rate.map(|(_, bucket)| bucket.whole());
        let (left, held) = match (places, tokens) {
            (Some(places), Some(tokens)) if tokens < places => (tokens, Held::Rate),
            (Some(places), _) => (places, Held::Full),
            (None, Some(tokens)) => (tokens, Held::Rate),
            (None, None) => (usize::MAX, Held::Never),
        };
        Opening { left, held, rate, taken: 0 }
    }
}

impl Opening {
    /// How many may still be taken.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// So many were taken.
    pub(crate) fn take(&mut self, tasks: usize) {
        if !matches!(self.held, Held::Never) {
            self.left = self.left.saturating_sub(tasks);
        }
        self.taken += tasks;
    }

    /// The bucket, if anything was taken from it.
    pub(crate) fn bucket(&self) -> Option<Bucket> {
        self.rate.filter(|_| self.taken > 0).map(|(_, bucket)| bucket.take(self.taken))
    }

    /// What is told of a lane, if nothing is left.
    pub(crate) fn held_back(&self, lane: LaneId) -> Option<HeldBack> {
        if self.left > 0 {
            return None;
        }
        let (by, until) = match self.held {
            Held::Paused(until) => (Restraint::Pause, until),
            Held::Full => (Restraint::Concurrency, None),
            Held::Rate => (Restraint::Rate, self.rate.map(|(limit, bucket)| limit.next(bucket.take(self.taken)))),
            Held::Never => return None,
        };
        Some(HeldBack { lane, by, until })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn held(opening: &Opening) -> Option<(Restraint, Option<i64>)> {
        opening.held_back(LaneId::new(1)).map(|held| (held.by, held.until.map(Timestamp::as_millis)))
    }

    #[test]
    fn the_narrowest_limit_holds() {
        let limit = RateLimit { per_second: 10.0, burst: 2 };
        let gate = Gate { max_concurrency: Some(3), rate: Some((limit, None)), pause: None };
        let mut opening = gate.open(0, at(0));
        assert_eq!((opening.left(), held(&opening)), (2, None));
        opening.take(2);
        assert_eq!((opening.left(), held(&opening)), (0, Some((Restraint::Rate, Some(100)))));
        let mut opening = gate.open(2, at(0));
        opening.take(1);
        assert_eq!(held(&opening), Some((Restraint::Concurrency, None)));
        assert!((opening.bucket().expect("one was taken").tokens - 1.0).abs() < 1e-9);
        assert_eq!(gate.open(9, at(0)).left(), 0);
        assert_eq!(gate.open(9, at(0)).bucket(), None);
    }

    #[test]
    fn a_pause_holds_until_its_end() {
        let gate = Gate { pause: Some(Closed(Some(at(10)))), ..Gate::default() };
        assert_eq!(held(&gate.open(0, at(9))), Some((Restraint::Pause, Some(10))));
        assert_eq!(gate.open(0, at(10)).left(), usize::MAX);
        let gate = Gate { pause: Some(Closed(None)), ..Gate::default() };
        assert_eq!(held(&gate.open(0, at(9))), Some((Restraint::Pause, None)));
    }
}
