//! How long the oldest task of each band has waited.
//!
//! The dispatcher records since when, and the metrics ask how long that is by now. So the number
//! grows by itself while nothing is claimed.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use punctual_core::time::Timestamp;

use super::Band;

/// Stands for a band without waiting tasks.
const NEVER: i64 = i64::MAX;

/// Since when each band waits. Shared by the dispatcher and the metrics.
#[derive(Debug)]
pub struct LongestWaits([AtomicI64; 3]);

impl LongestWaits {
    /// Records when the oldest waiting task of a band was due; none when nothing waits.
    pub fn since(&self, band: Band, due_at: Option<Timestamp>) {
        self.0[band as usize].store(due_at.map_or(NEVER, Timestamp::as_millis), Ordering::Relaxed);
    }

    /// How long the oldest task of a band has waited by now; zero when nothing waits.
    pub fn longest(&self, band: Band, now: Timestamp) -> Duration {
        let since = self.0[band as usize].load(Ordering::Relaxed);
        Duration::from_millis(u64::try_from(now.as_millis().saturating_sub(since)).unwrap_or(0))
    }
}

impl Default for LongestWaits {
    fn default() -> Self {
        Self([NEVER; 3].map(AtomicI64::new))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_grows_by_itself_and_is_zero_without_tasks() {
        let (waits, at) = (LongestWaits::default(), Timestamp::from_millis);
        assert_eq!(waits.longest(Band::Low, at(5_000)), Duration::ZERO);
        waits.since(Band::Low, Some(at(1_000)));
        assert_eq!(waits.longest(Band::Low, at(5_000)), Duration::from_secs(4));
        assert_eq!(waits.longest(Band::Low, at(6_000)), Duration::from_secs(5));
        assert_eq!(
            (waits.longest(Band::Low, at(0)), waits.longest(Band::High, at(6_000))),
            (Duration::ZERO, Duration::ZERO)
        );
        waits.since(Band::Low, None);
        assert_eq!(waits.longest(Band::Low, at(7_000)), Duration::ZERO);
    }
}
