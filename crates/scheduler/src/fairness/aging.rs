//! Aging: the effective priority of a task rises while it waits. Pure.

use std::time::Duration;

use punctual_core::time::{Timestamp, signed_millis};

/// The most urgent priority.
const PRIORITY_MAX: u8 = 9;

/// How fast priorities rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aging {
    /// Zero: waiting does not count.
    millis_for_one: i64,
}

impl Aging {
    /// One priority more for every `wait`; zero means that waiting does not count.
    pub fn new(wait: Duration) -> Self {
        Self { millis_for_one: signed_millis(wait) }
    }

    /// How long a wait counts as one priority more; zero if waiting does not count.
    pub fn millis_for_one(self) -> i64 {
        self.millis_for_one
    }

    /// The effective priority at `now` of a task with this priority that is due since `due_at`.
    pub fn priority(self, priority: u8, due_at: Timestamp, now: Timestamp) -> u8 {
        if self.millis_for_one == 0 {
            return priority;
        }
        let waited = now.as_millis().saturating_sub(due_at.as_millis()).max(0);
        let raised = u8::try_from(waited / self.millis_for_one).unwrap_or(u8::MAX);
        priority.saturating_add(raised).min(PRIORITY_MAX.max(priority))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn waiting_raises_the_priority_up_to_the_most_urgent() {
        let aging = Aging::new(Duration::from_secs(10));
        let after = |millis| aging.priority(2, at(0), at(millis));
        assert_eq!([after(-5), after(0), after(9_999), after(10_000), after(25_000)], [2, 2, 2, 3, 4]);
        assert_eq!([after(70_000), after(80_000), after(i64::MAX / 2)], [9, 9, 9]);
    }

    #[test]
    fn zero_means_that_waiting_does_not_count() {
        assert_eq!(Aging::new(Duration::ZERO).priority(0, at(0), at(i64::MAX / 2)), 0);
    }
}
