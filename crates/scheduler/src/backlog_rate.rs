//! The rate at which the backlog is claimed: a token bucket on the process's own clock.
//!
//! Pure: the caller passes the time. The push side of the dispatcher is the only caller. Tokens are
//! given out in portions of a twentieth of a second's worth. Otherwise a trickle of tokens would
//! cause a trickle of claims, each of which costs the store as much as a full one.
//!
//! Invariant: within any time, at most a second's worth is taken beyond what flows in meanwhile. If
//! a caller takes more than there is, later callers wait for it.

use std::time::Duration;

use punctual_core::queues::{Bucket, TokenFlow};
use punctual_core::time::Timestamp;
use tokio::time::Instant;

/// Portions of tokens in a second.
const PORTIONS_PER_SECOND: u32 = 20;

/// How many tasks of the backlog may be claimed now.
#[derive(Debug)]
pub(crate) struct BacklogRate {
    /// The bucket's instants count from here.
    epoch: Instant,
    /// None: any number of tasks may be claimed.
    limit: Option<(TokenFlow, Bucket)>,
}

impl BacklogRate {
    /// A full bucket for `per_second` tasks in a second; zero means any number.
    pub fn new(per_second: u32, now: Instant) -> Self {
        let flow = TokenFlow {
            per_second: f64::from(per_second),
            capacity: f64::from(per_second),
            portion: f64::from((per_second / PORTIONS_PER_SECOND).max(1)),
        };
        let full = Bucket { tokens: flow.capacity, refilled_at: Timestamp::from_millis(0) };
        Self { epoch: now, limit: (per_second > 0).then_some((flow, full)) }
    }

    /// Whether any number of tasks may be claimed.
    pub fn is_unlimited(&self) -> bool {
        self.limit.is_none()
    }

    /// How many tasks may be claimed now: none, or at least a portion.
    pub fn allowance(&self, now: Instant) -> usize {
        let Some((flow, bucket)) = &self.limit else { return usize::MAX };
        let tokens = flow.refill(*bucket, self.at(now)).whole();
        #[expect(clippy::cast_precision_loss, reason = "a bucket holds at most as many tokens as fit a u32")]
        let count = tokens as f64;
        debug_assert!(count <= flow.capacity, "{count} tokens in a bucket for {}", flow.capacity);
        let is_portion = count >= flow.portion;
        if is_portion { tokens } else { 0 }
    }

    /// Pays for claimed tasks. If they exceed the allowance, the next claim waits longer.
    pub fn take(&mut self, tasks: usize, now: Instant) {
        let at = self.at(now);
        if let Some((flow, bucket)) = &mut self.limit {
            *bucket = flow.refill(*bucket, at).take(tasks);
        }
    }

    /// How long it takes until tasks may be claimed again; zero when they may be now.
    pub fn wait(&self, now: Instant) -> Duration {
        match &self.limit {
            Some((flow, bucket)) if self.allowance(now) == 0 => {
                let at = self.at(now);
                flow.next(flow.refill(*bucket, at)).duration_from(at)
            }
            _ => Duration::ZERO,
        }
    }

    fn at(&self, now: Instant) -> Timestamp {
        let millis = now.saturating_duration_since(self.epoch).as_millis();
        Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_seconds_worth_at_once_and_then_as_it_flows_in() {
        let start = Instant::now();
        let mut rate = BacklogRate::new(200, start);
        assert_eq!((rate.allowance(start), rate.wait(start)), (200, Duration::ZERO));
        rate.take(200, start);
        assert_eq!((rate.allowance(start), rate.wait(start)), (0, Duration::from_millis(50)));
        let later = start + Duration::from_millis(49);
        assert_eq!((rate.allowance(later), rate.wait(later)), (0, Duration::from_millis(1)), "not a portion yet");
        assert_eq!(rate.allowance(start + Duration::from_millis(50)), 10);
        assert_eq!(rate.allowance(start + Duration::from_mins(1)), 200, "no more than a second's worth");
    }

    #[test]
    fn tokens_taken_in_excess_are_waited_for() {
        let start = Instant::now();
        let mut rate = BacklogRate::new(10, start);
        rate.take(30, start);
        assert_eq!(rate.wait(start), Duration::from_millis(2_100));
        assert_eq!(rate.allowance(start + Duration::from_secs(2)), 0);
        assert_eq!(rate.allowance(start + Duration::from_secs(3)), 10);
    }

    #[test]
    fn zero_means_any_number() {
        let start = Instant::now();
        let mut rate = BacklogRate::new(0, start);
        rate.take(1_000_000, start);
        assert_eq!((rate.allowance(start), rate.wait(start)), (usize::MAX, Duration::ZERO));
    }

    proptest! {
        #[test]
        fn within_any_time_no_more_is_taken_than_flows_in(
            per_second in 1_u32..5_000,
            claims in proptest::collection::vec((0_u64..400, 1_usize..2_000), 1..200),
        ) {
            let start = Instant::now();
            let mut rate = BacklogRate::new(per_second, start);
            let mut now = start;
            let mut taken: Vec<(Instant, u32)> = Vec::new();
            for (pause, wish) in claims {
                now += Duration::from_millis(pause);
                let tasks = rate.allowance(now).min(wish);
                rate.take(tasks, now);
                taken.push((now, u32::try_from(tasks).unwrap()));
            }
            for first in 0..taken.len() {
                let mut sum = 0;
                for (at, tasks) in &taken[first..] {
                    sum += tasks;
                    let flowed = at.duration_since(taken[first].0).as_secs_f64() * f64::from(per_second);
                    prop_assert!(f64::from(sum) <= f64::from(per_second) + flowed + 1.0, "{sum} within {flowed}");
                }
            }
        }

        #[test]
        fn a_caller_that_waits_finds_a_portion_within_a_second(
            per_second in 1_u32..5_000,
            wishes in proptest::collection::vec(1_usize..2_000, 1..100),
        ) {
            let mut now = Instant::now();
            let mut rate = BacklogRate::new(per_second, now);
            for wish in wishes {
                let wait = rate.wait(now);
                prop_assert!(wait <= Duration::from_secs(1));
                now += wait;
                let tasks = rate.allowance(now);
                prop_assert!(tasks >= usize::try_from((per_second / PORTIONS_PER_SECOND).max(1)).unwrap());
                rate.take(tasks.min(wish), now);
            }
        }
    }
}
