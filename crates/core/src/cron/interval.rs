//! Fixed intervals: an anchor, and the instants at whole multiples of a length after it. Clock
//! changes do not affect them.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// The length of the shortest interval.
const MIN_MILLIS: u64 = 1_000;

/// The length of the longest interval: ten years of 366 days.
const MAX_MILLIS: u64 = 3_660 * 86_400_000;

/// A fixed interval that counts from an anchor, which is its first instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Raw", into = "Raw")]
pub struct Interval {
    millis: u64,
    anchor: Timestamp,
}

#[derive(Serialize, Deserialize)]
struct Raw {
    millis: u64,
    anchor: Timestamp,
}

/// An interval that is too short or too long. The sentence continues after the field's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a number of seconds from 1 to {}", MAX_MILLIS / 1_000)]
pub struct IntervalError;

impl Interval {
    /// Every `millis` from `anchor` on.
    pub const fn new(millis: u64, anchor: Timestamp) -> Result<Self, IntervalError> {
        if MIN_MILLIS <= millis && millis <= MAX_MILLIS { Ok(Self { millis, anchor }) } else { Err(IntervalError) }
    }

    /// The same instants, but none up to `instant`.
    #[must_use]
    pub fn starting_after(self, instant: Timestamp) -> Self {
        Self { anchor: self.next_after(instant).unwrap_or(Timestamp::MAX), ..self }
    }

    /// Its length.
    pub const fn millis(&self) -> u64 {
        self.millis
    }

    /// Where it counts from.
    pub const fn anchor(&self) -> Timestamp {
        self.anchor
    }

    /// The first instant after `after`; none if a timestamp cannot hold it.
    pub(super) fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        let (millis, anchor) = (i128::from(self.millis), i128::from(self.anchor.as_millis()));
        let next = self.begun(after.as_millis());
        i64::try_from(anchor + next * millis).ok().map(Timestamp::from_millis)
    }

    /// How many instants there are from `from` to `to`, both included.
    pub(super) fn count_between(&self, from: i64, to: i64) -> u64 {
        let before = i128::from(from) - 1;
        u64::try_from(self.begun(to) - self.begun(i64::try_from(before).unwrap_or(i64::MIN))).unwrap_or(0)
    }

    /// How many instants there are up to `at`.
    fn begun(&self, at: i64) -> i128 {
        let passed = i128::from(at) - i128::from(self.anchor.as_millis());
        (passed.div_euclid(i128::from(self.millis)) + 1).max(0)
    }
}

impl TryFrom<Raw> for Interval {
    type Error = IntervalError;
    fn try_from(raw: Raw) -> Result<Self, IntervalError> {
        Self::new(raw.millis, raw.anchor)
    }
}

impl From<Interval> for Raw {
    fn from(interval: Interval) -> Self {
        Self { millis: interval.millis, anchor: interval.anchor }
    }
}
