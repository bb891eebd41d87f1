//! Instants to the microsecond. The product counts milliseconds, which is too coarse for lateness.

#![allow(clippy::disallowed_methods, reason = "lateness is measured by the wall clock")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use punctual_core::time::Timestamp;

/// An instant in microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MicroInstant(i64);

impl MicroInstant {
    /// Now, by the wall clock.
    pub fn now() -> Self {
        Self::of_epoch(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
    }

    /// This long after the beginning of 1970.
    pub fn of_epoch(since: Duration) -> Self {
        Self(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    /// Microseconds after `due`; negative if before it.
    pub fn micros_after(self, due: Timestamp) -> i64 {
        self.0.saturating_sub(due.as_millis().saturating_mul(1_000))
    }
}

impl From<Timestamp> for MicroInstant {
    fn from(at: Timestamp) -> Self {
        Self(at.as_millis().saturating_mul(1_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_of_a_millisecond_counts() {
        let due = Timestamp::from_millis(5_000);
        assert_eq!(MicroInstant(5_000_250).micros_after(due), 250);
        assert_eq!(MicroInstant(4_999_999).micros_after(due), -1);
        assert_eq!(MicroInstant::from(due).micros_after(due), 0);
    }
}
