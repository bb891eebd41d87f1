//! Instants to the microsecond: a millisecond, by which the product counts, is much of what lateness is about.

#![allow(clippy::disallowed_methods, reason = "what is measured is how late it is by the wall clock")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use punctual_core::time::Timestamp;

/// An instant in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(i64);

impl Moment {
    /// Now, by the wall clock.
    pub fn now() -> Self {
        Self::of_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// So long after the beginning of 1970.
    pub fn of_epoch(since: Duration) -> Self {
        Self(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    /// How long after `due` it is in microseconds; negative: before it.
    pub fn micros_after(self, due: Timestamp) -> i64 {
        self.0.saturating_sub(due.as_millis().saturating_mul(1_000))
    }
}

impl From<Timestamp> for Moment {
    fn from(at: Timestamp) -> Self {
        Self(at.as_millis().saturating_mul(1_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_millisecond_is_late_and_not_early() {
        let due = Timestamp::from_millis(5_000);
        assert_eq!(Moment(5_000_250).micros_after(due), 250);
        assert_eq!(Moment(4_999_999).micros_after(due), -1);
        assert_eq!(Moment::from(due).micros_after(due), 0);
    }
}
