//! Predicts the reaper's next pass: it runs about twice a second.
//!
//! It is only an estimate: a round may miss the pass.

use std::sync::atomic::{AtomicI64, Ordering};

use punctual_core::time::Timestamp;

/// The time between two passes.
const INTERVAL_MILLIS: i64 = 502;

/// The last pass that was seen.
#[derive(Debug, Default)]
pub struct LastVisit(AtomicI64);

impl LastVisit {
    /// Records a pass.
    pub fn seen(&self, at: Timestamp) {
        self.0.fetch_max(at.as_millis(), Ordering::Relaxed);
    }

    /// The first pass from this instant on; none if none has been seen before.
    pub fn next(&self, from: Timestamp) -> Option<Timestamp> {
        let last = self.0.load(Ordering::Relaxed);
        let passed = from.as_millis() - last;
        let visits = passed.div_euclid(INTERVAL_MILLIS) + 1;
        (last > 0).then(|| Timestamp::from_millis(last + visits * INTERVAL_MILLIS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_pass_is_predicted() {
        let pulse = LastVisit::default();
        assert_eq!(pulse.next(Timestamp::from_millis(10_000)), None);
        pulse.seen(Timestamp::from_millis(10_000));
        pulse.seen(Timestamp::from_millis(9_000));
        assert_eq!(pulse.next(Timestamp::from_millis(10_100)), Some(Timestamp::from_millis(10_502)));
        assert_eq!(pulse.next(Timestamp::from_millis(11_100)), Some(Timestamp::from_millis(11_506)));
    }
}
