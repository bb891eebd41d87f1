//! When a breaker opens, and which counts are reported to the store.

use proptest::prelude::*;

use super::*;

const RULES: BreakerRules = BreakerRules { window_millis: 300_000, minimum: 20, failure_percent: 90 };

fn runs(ok: u64, failed: u64) -> Runs {
    Runs { ok, failed }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

fn opened(counts: &[(&str, &str, u64, u64)]) -> Vec<String> {
    let counts: Vec<(BreakerKey, Runs)> = counts
        .iter()
        .map(|(tenant, target, ok, failed)| (BreakerKey::new(tenant, target), runs(*ok, *failed)))
        .collect();
    RULES.to_open(&counts).into_iter().map(|(key, _)| format!("{}/{}", key.tenant, key.target)).collect()
}

#[test]
fn a_breaker_opens_above_its_percentage_of_enough_runs() {
    for (ok, failed, opens) in [
        (0, 19, false),
        (0, 20, true),
        (2, 18, false),
        (1, 19, true),
        (10, 90, false),
        (9, 91, true),
        (0, u64::MAX, true),
        (u64::MAX, u64::MAX, false),
        (0, 0, false),
    ] {
        assert_eq!(RULES.open(runs(ok, failed)), opens, "{ok} succeeded, {failed} failed");
    }
    assert!(!BreakerRules { minimum: 0, ..RULES }.open(runs(0, 0)), "nothing happened");
}

#[test]
fn a_dead_target_opens_its_own_breaker_and_not_its_tenants() {
    assert_eq!(opened(&[("t", "http://dead:80", 0, 100_000), ("t", "http://well:80", 3, 1)]), ["t/http://dead:80"]);
    assert_eq!(opened(&[("t", "http://dead:80", 0, 19)]), [""; 0], "too few runs open neither");
    // A target that fails often, but not often enough, does not stop the others either.
    assert_eq!(opened(&[("t", "http://ill:80", 100, 900), ("t", "http://idle:80", 0, 0)]), [""; 0]);
}

#[test]
fn failures_everywhere_open_the_tenants_breaker() {
    assert_eq!(opened(&[("t", "http://a:80", 0, 12), ("t", "http://b:80", 1, 12)]), ["t/"]);
    assert_eq!(opened(&[("t", "", 0, 20)]), ["t/"], "pull workers have only the tenant's breaker");
    assert_eq!(opened(&[("t", "", 30, 0), ("t", "http://a:80", 0, 12), ("t", "http://b:80", 0, 12)]), [""; 0]);
    assert_eq!(opened(&[("t", "", 0, 10), ("u", "", 0, 10)]), [""; 0], "tenants are apart");
}

#[test]
fn the_window_has_five_intervals_and_slides_by_one() {
    assert_eq!(RULES.slot_at(at(119)), at(60));
    assert_eq!(RULES.since(at(300)), at(60));
    assert_eq!(RULES.since(at(359)), at(60));
    assert_eq!(RULES.since(at(360)), at(120));
    let tiny = BreakerRules { window_millis: 1, ..RULES };
    assert_eq!(tiny.slot_at(at(7)), at(7), "no interval is shorter than a millisecond");
}

#[test]
fn only_tenants_with_failures_are_reported() {
    let mut windows = Windows::new(RULES);
    windows.add("well", "http://a:80", runs(500, 0), at(0));
    windows.add("ill", "http://a:80", runs(70, 0), at(0));
    windows.add("ill", "http://b:80", runs(8, 0), at(0));
    windows.add("ill", "", runs(5, 0), at(0));
    assert!(windows.to_report(at(1), &BTreeSet::new()).is_empty());
    windows.add("ill", "http://b:80", runs(0, 2), at(60));
    let reported = windows.to_report(at(61), &BTreeSet::new());
    let expected = [("", 0, runs(75, 0)), ("http://b:80", 0, runs(8, 0)), ("http://b:80", 60, runs(0, 2))];
    let expected = expected.map(|(target, interval, runs)| IntervalCounts {
        key: BreakerKey::new("ill", target),
        slot_at: at(interval),
        runs,
    });
    assert_eq!(reported, expected);
    windows.confirm(reported);
    assert!(windows.to_report(at(62), &BTreeSet::new()).is_empty(), "nothing has happened since");
}

#[test]
fn failures_at_another_node_are_reported_too() {
    let mut windows = Windows::new(RULES);
    windows.add("t", "http://a:80", runs(7, 0), at(0));
    windows.add("t", "http://b:80", runs(1, 0), at(0));
    let known = BTreeSet::from([BreakerKey::new("s", "http://a:80"), BreakerKey::new("t", "http://a:80")]);
    let reported = windows.to_report(at(1), &known);
    let reported: Vec<(&str, u64)> = reported.iter().map(|one| (one.key.target.as_str(), one.runs.ok)).collect();
    assert_eq!(reported, [("", 1), ("http://a:80", 7)]);
    let mut windows = Windows::new(RULES);
    windows.add("t", "http://a:80", runs(7, 0), at(0));
    assert!(windows.to_report(at(1), &BTreeSet::from([BreakerKey::new("s", ""), BreakerKey::new("u", "")])).is_empty());
}

#[test]
fn forgotten_counts_are_reported_as_zero() {
    let mut windows = Windows::new(RULES);
    windows.add("t", "http://a:80", runs(0, 7), at(0));
    windows.add("t", "", runs(1, 1), at(0));
    let reported = windows.to_report(at(1), &BTreeSet::new());
    windows.confirm(reported);
    windows.forget(&BreakerKey::new("t", "http://a:80"));
    let reported = windows.to_report(at(2), &BTreeSet::new());
    assert_eq!(
        reported,
        [IntervalCounts { key: BreakerKey::new("t", "http://a:80"), slot_at: at(0), runs: Runs::default() }]
    );
    windows.confirm(reported);
    windows.forget(&BreakerKey::of_tenant("t"));
    assert_eq!(windows.to_report(at(3), &BTreeSet::new()).len(), 1);
    assert!(windows.to_report(at(1_000), &BTreeSet::new()).is_empty());
    assert!(windows.is_empty());
}

#[test]
fn no_more_keys_are_counted_than_there_is_room_for() {
    let mut windows = Windows::new(RULES);
    for number in 0..=KEYS_MAX {
        windows.add("t", &number.to_string(), runs(0, 1), at(0));
    }
    assert_eq!(windows.to_report(at(0), &BTreeSet::new()).len(), KEYS_MAX);
}

proptest! {
    /// In any order of reports, and with any lost answers, the store has the runs of the window in
    /// the end.
    #[test]
    fn the_reported_counts_are_those_counted(
        steps in prop::collection::vec((0_i64..90, 0_usize..3, 0_u64..3, 0_u64..2, any::<bool>()), 1..60),
    ) {
        let targets = ["", "http://a:80", "http://b:80"];
        let mut windows = Windows::new(RULES);
        let mut store: BTreeMap<(BreakerKey, Timestamp), Runs> = BTreeMap::new();
        let mut counted: Vec<(Timestamp, Runs)> = Vec::new();
        let mut now = at(1_000);
        let mut failed_once = false;
        for (seconds, target, ok, failed, is_heard) in steps {
            now = now.plus_millis(seconds * 1_000);
            windows.add("t", targets[target], runs(ok, failed), now);
            counted.push((RULES.slot_at(now), runs(ok, failed)));
            let known = store.iter().filter(|((_, slot_at), _)| *slot_at >= RULES.since(now));
            let known: BTreeSet<BreakerKey> = known.map(|((key, _), _)| key.clone()).collect();
            let reported = windows.to_report(now, &known);
            for one in &reported {
                store.insert((one.key.clone(), one.slot_at), one.runs);
            }
            if is_heard {
                windows.confirm(reported);
            }
            let since = RULES.since(now);
            let within = |slot_at: &Timestamp| *slot_at >= since;
            let sum = |all: Vec<Runs>| all.into_iter().fold(Runs::default(), Runs::plus);
            let expected = sum(counted.iter().filter(|(slot_at, _)| within(slot_at)).map(|(_, runs)| *runs).collect());
            let stored = sum(store.iter().filter(|((_, slot_at), _)| within(slot_at)).map(|(_, runs)| *runs).collect());
            failed_once |= expected.failed > 0;
            if expected.failed > 0 {
                prop_assert_eq!(stored, expected);
            }
            prop_assert!(failed_once || store.is_empty());
        }
    }
}
