//! How often a call is made again, and after how long. Pure: the caller draws the random number.

use std::time::Duration;

use punctual_core::backoff::ExponentialBackoff;

/// How often, and after how long, a client repeats a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Attempts beyond the first.
    pub most: u32,
    /// The longest first wait; it doubles with each attempt.
    pub first: Duration,
    /// The longest wait. A client that is asked to wait longer gives up.
    pub longest: Duration,
}

impl Default for Retries {
    fn default() -> Self {
        Self { most: 5, first: Duration::from_millis(100), longest: Duration::from_secs(10) }
    }
}

impl Retries {
    /// No retries.
    pub const NEVER: Self = Self { most: 0, first: Duration::ZERO, longest: Duration::ZERO };

    /// How long to wait after attempt number `attempt` (from 1) failed and the server asked for
    /// `retry_after`; none to give up. `random` is from 0 to 1, so that clients that failed
    /// together do not return together.
    pub(super) fn wait(&self, attempt: u32, retry_after: Option<Duration>, random: f64) -> Option<Duration> {
        let retry_after = retry_after.unwrap_or_default();
        if attempt > self.most || retry_after > self.longest {
            return None;
        }
        Some(retry_after + ExponentialBackoff::new(self.first, self.longest).pause(attempt, random))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn waits_grow_and_are_bounded() {
        let retries = Retries { most: 40, first: 100 * MILLI, longest: 1_000 * MILLI };
        let most = |attempt| retries.wait(attempt, None, 1.0).unwrap();
        assert_eq!([1, 2, 3, 4, 5, 40].map(most), [100, 200, 400, 800, 1_000, 1_000].map(|millis| millis * MILLI));
        assert_eq!(retries.wait(3, None, 0.0), Some(Duration::ZERO));
        assert_eq!(retries.wait(41, None, 0.5), None);
        assert_eq!(Retries::NEVER.wait(1, None, 0.5), None);
    }

    #[test]
    fn no_retry_comes_before_its_retry_after() {
        let retries = Retries::default();
        let second = Duration::from_secs(1);
        assert_eq!(retries.wait(1, Some(second), 0.0), Some(second));
        assert_eq!(retries.wait(1, Some(second), 0.5), Some(second + 50 * MILLI));
        assert_eq!(retries.wait(1, Some(11 * second), 0.5), None);
    }
}
