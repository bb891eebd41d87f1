//! Compares the engine with a simple oracle: every zone, every change of its clocks from 2000 to
//! 2037, and [`CLASSES`].
//!
//! Around each change both compute the instants that fire, for all gap and fold policies. If zones
//! share a change (same instant, same clocks), the first is checked with every class and each
//! further one with a few of them, in rotation.

mod classes;
mod dumb;

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::steps;
use crate::cron::{CronExpression, DayOverflow, DstFold, DstGap, Pattern, Timing, TimingRules, Zone};
use crate::time::Timestamp;
use classes::{CLASSES, Change};
use dumb::{Dumb, Window};

/// The number of classes for a zone whose change was checked in another zone.
const FEW: usize = 4;

/// Seconds before a change from where the search has to jump to it.
const AFAR: i64 = 60 * 86_400;

/// Tests that share the work.
const SHARES: i64 = 4;

/// What was compared.
#[derive(Default, Debug)]
struct Tally {
    zones: usize,
    changes: usize,
    comparisons: usize,
    instants: usize,
    classes: BTreeSet<usize>,
}

/// 2000-01-01 and 2038-01-01.
const YEARS: (i64, i64) = (946_684_800, 2_145_916_800);

/// The changes of a zone's distance from UTC, by asking for it every fifth day and then halving.
fn changes(zone: &TimeZone) -> Vec<Change> {
    let ahead = |second: i64| i64::from(zone.to_offset(jiff::Timestamp::from_second(second).unwrap()).seconds());
    let mut found = Vec::new();
    let mut before = (YEARS.0, ahead(YEARS.0));
    while before.0 < YEARS.1 {
        let later = before.0 + 5 * 86_400;
        let after = (later, ahead(later));
        if before.1 != after.1 {
            let (mut low, mut high) = (before.0, after.0);
            while high - low > 1 {
                let middle = low + (high - low) / 2;
                if ahead(middle) == before.1 { low = middle } else { high = middle }
            }
            found.push(Change { at: high, before: before.1, after: after.1 });
        }
        before = after;
    }
    found
}

/// Asking every fifth day finds every change in the database, and the engine uses the same ones.
#[test]
fn no_change_of_clocks_is_overlooked() {
    let database = TimeZoneDatabase::bundled();
    for name in Zone::names() {
        let rules = database.get(&name).unwrap();
        let zone = Zone::named(&name).unwrap();
        let mut listed = Vec::new();
        let mut stretch = zone.stretch_at(YEARS.0);
        while stretch.until < YEARS.1 {
            let next = zone.stretch_at(stretch.until);
            assert_eq!(next.from, stretch.until, "{name}");
            if next.ahead != stretch.ahead {
                listed.push((next.from, stretch.ahead, next.ahead));
            }
            stretch = next;
        }
        let found: Vec<_> = changes(&rules)
            .into_iter()
            .filter(|change| change.at < YEARS.1)
            .map(|change| (change.at, change.before, change.after))
            .collect();
        assert_eq!(found, listed, "{name}");
    }
}

/// The policies that make a difference at a change. The policy that makes none rotates.
fn policies(cron: &Dumb, change: &Change, turn: usize) -> Vec<(DstGap, DstFold)> {
    let (gaps, folds) = ([DstGap::Shift, DstGap::Skip], [DstFold::First, DstFold::Last, DstFold::Both]);
    if cron.is_wildcard() {
        vec![(gaps[turn % 2], folds[turn % 3])]
    } else if change.after > change.before {
        gaps.map(|gap| (gap, folds[turn % 3])).to_vec()
    } else {
        folds.map(|fold| (gaps[turn % 2], fold)).to_vec()
    }
}

/// Checks every zone at its changes in one week of four, with the classes for each.
fn check(share: i64) -> Tally {
    let database = TimeZoneDatabase::bundled();
    let mut tally = Tally::default();
    let mut crons: BTreeMap<String, (CronExpression, Dumb)> = BTreeMap::new();
    let mut seen: BTreeSet<(i64, i64, i64)> = BTreeSet::new();
    for name in Zone::names() {
        let rules = database.get(&name).unwrap();
        let found = changes(&rules);
        let zone = Zone::named(&name).unwrap();
        for (number, change) in found.iter().enumerate() {
            // Divided by the instant of the change, so that zones with the same change are in one
            // share.
            if change.at / 604_800 % SHARES != share {
                continue;
            }
            let is_new = seen.insert((change.at, change.before, change.after));
            let window = Window::around(&rules, change, &found);
            for (class, template) in CLASSES.iter().enumerate() {
                if !is_new && (class + number * FEW + name.len()) % CLASSES.len() >= FEW {
                    continue;
                }
                let text = template.filled_in(change);
                let (cron, dumb) = crons.entry(text).or_insert_with_key(|text| {
                    let cron = CronExpression::parse(text).unwrap_or_else(|fault| panic!("{text} {fault}"));
                    (cron, Dumb::read(text, DayOverflow::Skip))
                });
                for (dst_gap, dst_fold) in policies(dumb, change, number + class) {
                    let rules = TimingRules { zone: zone.clone(), dst_gap, dst_fold, ..TimingRules::default() };
                    let timing = Timing { pattern: Pattern::Cron(cron.clone()), rules };
                    tally.instants += compare(&timing, dumb, &window, change);
                    tally.comparisons += 1;
                }
                tally.classes.insert(class);
            }
            tally.changes += 1;
        }
        tally.zones += 1;
    }
    tally
}

/// Compares the instants of both within the window. Returns how many there are.
fn compare(timing: &Timing, dumb: &Dumb, window: &Window, change: &Change) -> usize {
    let expected = window.fired(dumb, timing.rules.dst_gap, timing.rules.dst_fold);
    let (from, to) = (millis(window.from), Timestamp::from_millis(window.until * 1_000 - 1));
    let found: Vec<i64> =
        timing.iter_between(from, to).take(expected.len() + 2).map(|at| at.as_millis() / 1_000).collect();
    assert!(found == expected, "{timing:?} at {change:?}:\nengine {found:?}\noracle {expected:?}");
    let counted = timing.count_between(from, to);
    assert!(counted == expected.len() as u64, "{timing:?} at {change:?}: {counted} counted, oracle {expected:?}");
    let next_after = |second: i64| {
        let (next, steps) = steps::of(|| timing.next_after(millis(second)));
        assert!(steps <= steps::MOST, "{timing:?} after {second} at {change:?}: {steps} steps");
        next
    };
    // From inside the window, where the search begins at a change or in the middle of a fold.
    let size = (change.after - change.before).abs();
    for after in [change.at - 1, change.at, change.at - size / 2, change.at + size / 2, change.at + size - 1] {
        let next = next_after(after).filter(|at| *at <= to).map(|at| at.as_millis() / 1_000);
        let oracle = expected.iter().copied().find(|second| *second > after);
        assert!(next == oracle, "{timing:?} after {after} at {change:?}:\nengine {next:?}\noracle {oracle:?}");
    }
    // From afar, so that the search has to jump. It arrives here unless it finds an earlier
    // instant.
    let next = next_after(window.from - AFAR).map(|at| at.as_millis() / 1_000);
    if next.is_none_or(|second| second >= window.from) {
        let next = next.filter(|second| *second < window.until);
        assert!(next == expected.first().copied(), "{timing:?} from afar at {change:?}: {next:?}, {expected:?}");
    }
    expected.len()
}

fn millis(second: i64) -> Timestamp {
    Timestamp::from_millis(second * 1_000)
}

fn share(number: i64) {
    let tally = check(number);
    println!(
        "share {number}: {} zones, {} changes, {} comparisons, {} instants",
        tally.zones, tally.changes, tally.comparisons, tally.instants
    );
    assert!(tally.zones > 400 && tally.changes > 1_000, "{tally:?}");
    assert_eq!(tally.classes.len(), CLASSES.len(), "every class was compared");
    assert!(tally.instants > tally.comparisons / 2, "{tally:?}");
}

#[test]
fn every_zone_and_every_change_of_its_clocks_first_share() {
    share(0);
}

#[test]
fn every_zone_and_every_change_of_its_clocks_second_share() {
    share(1);
}

#[test]
fn every_zone_and_every_change_of_its_clocks_third_share() {
    share(2);
}

#[test]
fn every_zone_and_every_change_of_its_clocks_fourth_share() {
    share(3);
}

/// Which days match, without clock changes, over all the years.
#[test]
fn every_day_of_a_century() {
    let change = Change { at: 1_774_746_000, before: 3_600, after: 7_200 };
    let utc = TimeZoneDatabase::bundled().get("UTC").unwrap();
    let (mut days, mut done) = (0, BTreeSet::new());
    for template in CLASSES {
        let text = template.filled_in(&change);
        let fields: Vec<&str> = text.split(' ').collect();
        let Some(days_only) = fields.get(fields.len().saturating_sub(3)..).filter(|rest| rest.len() == 3) else {
            continue;
        };
        let text = format!("0 0 {}", days_only.join(" "));
        if !done.insert(text.clone()) {
            continue;
        }
        for day_overflow in [DayOverflow::Skip, DayOverflow::Last] {
            let dumb = Dumb::read(&text, day_overflow);
            let cron = CronExpression::parse(&text).unwrap();
            let rules = TimingRules { day_overflow, ..TimingRules::default() };
            let timing = Timing { pattern: Pattern::Cron(cron), rules };
            let date = |second: i64| utc.to_datetime(jiff::Timestamp::from_second(second).unwrap()).date();
            let expected: Vec<i64> =
                (YEARS.0..6_000_000_000).step_by(86_400).filter(|second| dumb.matches_day(date(*second))).collect();
            let (from, to) = (millis(YEARS.0), Timestamp::from_millis(6_000_000_000_000 - 1));
            let found: Vec<i64> = timing.iter_between(from, to).map(|at| at.as_millis() / 1_000).collect();
            assert!(found == expected, "{text}, {day_overflow:?}");
            assert_eq!(timing.count_between(from, to), expected.len() as u64, "{text}, {day_overflow:?}");
            days += expected.len();
        }
    }
    assert!(days > 100_000, "{days}");
}
