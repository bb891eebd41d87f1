//! How many webhooks may be claimed beyond the slots of their target, because calls there will end
//! soon.
//!
//! A claim takes a few milliseconds, and a large one costs little more than a small one. So runs
//! are claimed for the calls that will end within [`AHEAD_FOR`], as the last calls at the target
//! let expect. Nothing is claimed ahead for a slow target: there a run would wait for long.

use std::collections::HashMap;
use std::time::Duration;

/// How long a run that was claimed ahead should wait at most.
const AHEAD_FOR: Duration = Duration::from_millis(20);
/// The part of the last call in the average.
const NEWEST_PART: u32 = 16;
/// The maximum number of targets that are known; those in use come back at once.
const TARGETS_MAX: usize = 4_096;

/// How long calls take at each target, on average over the last ones.
#[derive(Debug, Default)]
pub(super) struct Pace {
    durations: HashMap<String, Duration>,
}

impl Pace {
    /// A call at a target has ended after this time.
    pub fn end_call(&mut self, target: &str, took: Duration) {
        if let Some(average) = self.durations.get_mut(target) {
            *average = *average * (NEWEST_PART - 1) / NEWEST_PART + took / NEWEST_PART;
            return;
        }
        if self.durations.len() >= TARGETS_MAX {
            self.durations.clear();
        }
        self.durations.insert(target.to_owned(), took);
    }

    /// How many of so many calls that are under way at a target will be followed by another within
    /// the time for which runs are claimed ahead.
    pub fn ahead(&self, target: &str, calls: usize) -> usize {
        let Some(average) = self.durations.get(target) else { return 0 };
        let ahead = calls as u128 * AHEAD_FOR.as_nanos() / average.as_nanos().max(1);
        usize::try_from(ahead).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Duration = Duration::from_millis(2);
    const SLOW: Duration = Duration::from_secs(1);

    #[test]
    fn as_much_is_claimed_ahead_as_will_be_called_soon() {
        let mut pace = Pace::default();
        assert_eq!(pace.ahead("new", 50), 0);
        pace.end_call("fast", FAST);
        pace.end_call("slow", SLOW);
        assert_eq!(
            [("fast", 50), ("fast", 0), ("slow", 50)].map(|(target, calls)| pace.ahead(target, calls)),
            [500, 0, 1]
        );
    }

    #[test]
    fn a_target_that_becomes_slow_is_soon_known_as_slow() {
        let mut pace = Pace::default();
        pace.end_call("a", FAST);
        for _ in 0..8 {
            pace.end_call("a", SLOW);
        }
        assert!(pace.ahead("a", 50) < 5, "{pace:?}");
        for _ in 0..200 {
            pace.end_call("a", FAST);
        }
        assert!(pace.ahead("a", 50) > 400, "{pace:?}");
    }

    #[test]
    fn the_memory_for_targets_is_bounded() {
        let mut pace = Pace::default();
        for number in 0..TARGETS_MAX * 2 {
            pace.end_call(&number.to_string(), FAST);
        }
        assert!(pace.durations.len() <= TARGETS_MAX);
    }
}
