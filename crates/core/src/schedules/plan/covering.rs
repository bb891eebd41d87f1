//! Cuts records that stand for many instants, so that a backfill of some of them keeps what is
//! known of the others.
//!
//! Called by the API's backfill. Invariant: the parts stand for every instant of the record that is
//! not backfilled, as long as the schedule has the timing that the record was made by. With another
//! timing nobody knows those instants any more; then the parts keep their number.

use super::Covers;
use crate::cron::Timing;
use crate::time::Timestamp;

/// A record that stands for many instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoveringRecord {
    /// Its instant, which is the first of them.
    pub instant: Timestamp,
    /// The others.
    pub covers: Covers,
}

/// What is left of such a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The instant of the record.
    pub instant: Timestamp,
    /// The parts, each an instant and the others that it stands for.
    pub parts: Vec<(Timestamp, Option<Covers>)>,
}

/// Takes backfilled instants, which are consecutive ones of the schedule, out of a record. None if
/// it stands for none of them.
pub fn cut(timing: &Timing, record: &CoveringRecord, backfilled: &[Timestamp]) -> Option<Cut> {
    let CoveringRecord { instant, covers: Covers { until, at_least } } = *record;
    let index = |at: Timestamp| backfilled.partition_point(|one| *one < at);
    let taken = &backfilled[index(instant)..index(until)];
    let (first, last) = (*taken.first()?, *taken.last()?);
    let mut left = at_least.saturating_sub(taken.len() as u64);
    let mut parts = Vec::new();
    if instant < first {
        let before = 1 + timing.count_between(instant.plus_millis(1), first.plus_millis(-1));
        let before = before.min(left.max(1));
        parts.push((instant, Covers::of(first, before)));
        left = left.saturating_sub(before);
    }
    if left > 0 {
        let begins = timing.next_after(last).filter(|at| *at < until).unwrap_or_else(|| last.plus_millis(1));
        parts.push((begins, Covers::of(until, left)));
    }
    Some(Cut { instant, parts })
}
