//! The lag of a standby: how long ago the primary was where the standby is now.
//!
//! It depends neither on the servers' clocks nor on the time of the last transaction: the standby
//! of an idle primary is not late.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The maximum number of positions; beyond it every second one is dropped.
const POSITIONS_MAX: usize = 1_024;

/// Where the primary was, and until when.
#[derive(Default)]
pub(crate) struct Positions(VecDeque<(Instant, i64)>);

impl Positions {
    /// Records how far the primary had written at an instant.
    pub(super) fn take_in(&mut self, at: Instant, position: i64) {
        // A log that goes back is the log of another primary.
        if self.0.back().is_some_and(|(_, last)| position < *last) {
            self.0.clear();
        }
        match self.0.back_mut() {
            Some((until, last)) if *last == position => *until = at,
            _ => self.0.push_back((at, position)),
        }
        if self.0.len() > POSITIONS_MAX {
            let mut keep = false;
            self.0.retain(|_| {
                keep = !keep;
                keep
            });
        }
    }

    /// How long ago the primary was at `position`; none if that was before the first record.
    pub(super) fn lag(&self, now: Instant, position: i64) -> Option<Duration> {
        let known = self.0.partition_point(|(_, written)| *written <= position);
        // The primary is at the last position, as far as is known.
        if known == self.0.len() {
            return (known > 0).then_some(Duration::ZERO);
        }
        let (until, _) = self.0.get(known.checked_sub(1)?)?;
        Some(now.saturating_duration_since(*until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn the_lag_is_the_age_of_the_replayed_position() {
        let (mut positions, start) = (Positions::default(), Instant::now());
        assert_eq!(positions.lag(start, 100), None, "nothing is known");
        for (second, position) in [(0, 100), (1, 200), (2, 200), (3, 300)] {
            positions.take_in(after(start, second), position);
        }
        let lag = |position| positions.lag(after(start, 4), position).map(|lag| lag.as_secs());
        assert_eq!(lag(300), Some(0));
        assert_eq!(lag(999), Some(0), "ahead of the last sample");
        assert_eq!(lag(299), Some(2), "the primary left 200 after the second second");
        assert_eq!(lag(200), Some(2));
        assert_eq!(lag(150), Some(4));
        assert_eq!(lag(99), None, "it was there before the first sample");
    }

    #[test]
    fn the_standby_of_an_idle_primary_is_not_late() {
        let (mut positions, start) = (Positions::default(), Instant::now());
        for second in 0..1_000 {
            positions.take_in(after(start, second), 100);
        }
        positions.take_in(after(start, 1_000), 101);
        assert_eq!(positions.lag(after(start, 1_000), 100), Some(Duration::from_secs(1)));
        assert_eq!(positions.0.len(), 2);
    }

    #[test]
    fn a_long_lag_is_known_roughly() {
        let (mut positions, start) = (Positions::default(), Instant::now());
        for second in 0..100_000_u32 {
            positions.take_in(after(start, u64::from(second)), i64::from(second) * 10);
        }
        assert!(positions.0.len() <= POSITIONS_MAX);
        let lag = positions.lag(after(start, 99_999), 10_000).unwrap().as_secs();
        assert!((98_000..=99_999).contains(&lag), "{lag}");
        positions.take_in(after(start, 100_000), 5);
        assert_eq!(positions.0.len(), 1, "another log");
    }
}
