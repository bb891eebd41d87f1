//! Records that stand for many instants, and what a backfill leaves of them.

use proptest::prelude::*;

use super::{at, minutely};
use crate::schedules::plan::{CoveringRecord, Covers, backfill, cut};
use crate::time::Timestamp;

const MINUTE: i64 = 60_000;

fn minutes(from: i64, until: i64) -> CoveringRecord {
    let instant = |minute| at("00:00:00").plus_millis(minute * MINUTE);
    let covers = Covers { until: instant(until), at_least: (until - from).cast_unsigned() };
    CoveringRecord { instant: instant(from), covers }
}

/// The minutes that a record stands for.
fn stands_for(instant: Timestamp, covers: Option<Covers>) -> Vec<Timestamp> {
    let Some(Covers { until, at_least }) = covers else { return vec![instant] };
    let all: Vec<Timestamp> = minutely().timing.iter_between(instant, until.plus_millis(-1)).collect();
    assert_eq!(all.len() as u64, at_least, "{instant} to {until}");
    all
}

proptest! {
    #[test]
    fn a_backfill_and_the_rest_are_the_whole_record(
        from in 0..50_i64, length in 2..50_i64, first in 0..100_i64, more in 0..50_i64,
    ) {
        let record = minutes(from, from + length);
        let range = minutes(first, first + more);
        let backfilled = backfill(&minutely(), range.instant, range.covers.until).unwrap();
        let before = stands_for(record.instant, Some(record.covers));
        let taken: Vec<Timestamp> = before.iter().copied().filter(|at| backfilled.contains(at)).collect();
        match cut(&minutely().timing, &record, &backfilled) {
            None => prop_assert_eq!(taken, []),
            Some(cut) => {
                prop_assert_eq!(cut.instant, record.instant);
                let mut after: Vec<Timestamp> = cut.parts.iter().flat_map(|part| stands_for(part.0, part.1)).collect();
                prop_assert!(!taken.is_empty() && after.iter().all(|at| !taken.contains(at)));
                after.extend(taken);
                after.sort_unstable();
                prop_assert_eq!(after, before);
            }
        }
    }
}

/// Nobody knows the instants by the earlier timing, but they are not forgotten.
#[test]
fn a_new_timing_takes_no_more_than_it_backfills() {
    let mut hourly = minutely();
    hourly.timing = super::timing("0 * * * *");
    let cut = |record, from: &str, to: &str| {
        super::super::cut(&hourly.timing, &record, &backfill(&hourly, at(from), at(to)).unwrap()).unwrap().parts
    };
    let left = |parts: &[(Timestamp, Option<Covers>)]| -> u64 {
        parts.iter().map(|(_, covers)| covers.map_or(1, |covers| covers.at_least)).sum()
    };
    assert_eq!(cut(minutes(0, 30), "00:00:00", "00:00:00"), [(at("00:00:00.001"), minutes(1, 30).covers.into())]);
    assert_eq!(left(&cut(minutes(0, 300), "00:00:00", "02:00:00")), 297);
    assert_eq!(left(&cut(minutes(30, 300), "01:00:00", "02:00:00")), 268);
}
