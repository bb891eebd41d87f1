//! How those are counted that go before a task, whatever the database. Pure.

use punctual_core::obstacles::Ahead;
use punctual_core::time::Timestamp;

/// Lanes of a queue that are looked at; where there are more, nobody counts further.
pub(crate) const LANES: usize = 1_000;

/// A place in a lane: due instant and number of submission.
pub(crate) type Place = (i64, i64);

/// What is told where so many were found, one more than `most` being enough to know that there are more.
pub(crate) fn counted(found: usize, most: usize) -> Ahead {
    Ahead { tasks: u64::try_from(found.min(most)).unwrap_or(u64::MAX), or_more: found > most }
}

/// Up to where the tasks of a lane go before one that stands at `own`: all that are due, if the lane is more urgent.
pub(crate) fn place_before(is_more_urgent: bool, own: Place, now: Timestamp) -> Place {
    if is_more_urgent { (now.as_millis(), i64::MAX) } else { own }
}
