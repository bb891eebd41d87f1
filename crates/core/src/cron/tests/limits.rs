//! The ends of time, the rarest dates, and properties of every expression.

use proptest::prelude::*;

use super::{at, moved, steps, timing};
use crate::cron::{CronExpression, DayOverflow, DstFold, DstGap, Interval, Pattern, Timing, TimingRules, Zone};
use crate::time::Timestamp;

/// Expressions that are as rare as they can be.
const RARE: [&str; 8] = [
    "0 0 29 2 *",
    "59 59 23 29 2 *",
    "0 0 * 2 MON#5",
    "0 0 29 2 */7",
    "30 2 L-28 2 *",
    "30 2 29W 2 *",
    "0 0 31 12 *",
    "30 2 */28 2 THU#5",
];

#[test]
fn the_rarest_dates_are_found() {
    let next = |cron: &str, after: &str| timing(cron, "UTC").next_after(at(after)).unwrap().to_string();
    assert_eq!(next("0 0 29 2 *", "2096-03-01T00:00:00Z"), "2104-02-29T00:00:00.000Z");
    assert_eq!(next("0 0 29 2 *", "2096-02-29T00:00:00Z"), "2104-02-29T00:00:00.000Z");
    assert_eq!(next("0 0 29 2 *", "1896-03-01T00:00:00Z"), "1904-02-29T00:00:00.000Z");
    // 29 February is a Monday in 2072 and not again before 2112, since there is none in 2100.
    assert_eq!(next("0 0 * 2 MON#5", "2072-03-01T00:00:00Z"), "2112-02-29T00:00:00.000Z");
    assert_eq!(next("0 0 29 2 */7", "2088-02-29T00:00:00Z"), "2128-02-29T00:00:00.000Z");
    let berlin = timing("30 2 29 2 *", "Europe/Berlin");
    assert_eq!(berlin.next_after(at("2096-03-01T00:00:00Z")), Some(at("2104-02-29T01:30:00Z")));
}

/// Egypt puts its clocks forward over this hour on the last Friday of April, by its current rule.
#[test]
fn a_time_that_is_always_in_a_gap_is_given_up_soon() {
    let timing = moved("30 0 ? 4 5L", "Africa/Cairo", DstGap::Skip, DstFold::First);
    let (next, steps) = steps::of(|| timing.next_after(at("2026-01-01T00:00:00Z")));
    assert_eq!(next, None);
    assert!(steps <= steps::MOST, "{steps} steps");
    let shifted = moved("30 0 ? 4 5L", "Africa/Cairo", DstGap::Shift, DstFold::First);
    assert_eq!(shifted.next_after(at("2026-01-01T00:00:00Z")), Some(at("2026-04-23T22:00:00Z")));
}

/// The search skips the clock changes of the forty years between two such dates.
#[test]
fn the_rarest_dates_take_no_more_steps_than_others() {
    for zone in Zone::names() {
        for (cron, after) in RARE.iter().flat_map(|cron| ["1896", "2072", "2088", "2096"].map(|year| (cron, year))) {
            let (timing, after) = (timing(cron, &zone), at(&format!("{after}-03-01T00:00:00Z")));
            let (next, steps) = steps::of(|| timing.next_after(after));
            assert!(next.is_some() && steps <= steps::FEW, "{cron} in {zone} after {after}: {next:?}, {steps} steps");
        }
    }
}

#[test]
fn neither_end_of_time_is_a_problem() {
    let ends = [i64::MIN, i64::MIN + 1, -62_135_596_800_001, -62_135_596_800_000, -1, 0, 1];
    for zone in ["UTC", "Europe/Berlin", "Pacific/Apia", "America/St_Johns", "Etc/GMT+12", "Pacific/Kiritimati"] {
        for cron in RARE.into_iter().chain(["* * * * * *", "@hourly", "0 0 1 1 *"]) {
            for (gap, fold) in [(DstGap::Shift, DstFold::First), (DstGap::Skip, DstFold::Last)] {
                let timing = moved(cron, zone, gap, fold);
                for after in ends {
                    let next = timing.next_after(Timestamp::from_millis(after)).unwrap();
                    assert!(next.as_millis() > after && next >= at("0001-01-01T00:00:00Z"), "{cron} {zone} {after}");
                }
                for after in [i64::MAX, i64::MAX - 1, Timestamp::MAX.as_millis(), 253_402_207_200_000] {
                    assert_eq!(timing.next_after(Timestamp::from_millis(after)), None, "{cron} {zone} {after}");
                }
                let late = timing.iter_between(at("9999-12-30T21:00:00Z"), Timestamp::MAX).take(10_000).count();
                assert!(late <= 3_601, "{cron} {zone}");
            }
        }
    }
}

#[test]
fn an_interval_reaches_neither_end_of_time() {
    for anchor in [i64::MIN, -1, 0] {
        for millis in [1_000, 316_224_000_000] {
            let interval = Interval::new(millis, Timestamp::from_millis(anchor)).unwrap();
            let timing = Timing { pattern: Pattern::Interval(interval), rules: TimingRules::default() };
            for after in [i64::MIN, 0, 1_779_472_800_000] {
                let next = timing.next_after(Timestamp::from_millis(after)).unwrap().as_millis();
                assert!(next > after && next >= -62_135_596_800_000);
                assert_eq!((i128::from(next) - i128::from(anchor)).rem_euclid(i128::from(millis)), 0);
            }
            assert_eq!(timing.next_after(Timestamp::from_millis(i64::MAX)), None);
            assert_eq!(timing.next_after(Timestamp::MAX), None);
        }
    }
    let late = Interval::new(1_000, Timestamp::from_millis(i64::MAX)).unwrap();
    let late = Timing { pattern: Pattern::Interval(late), rules: TimingRules::default() };
    assert_eq!(late.next_after(Timestamp::from_millis(0)), None);
    // Neither end can be written: such a start or such an end does not overflow either.
    let mut timing = timing("* * * * *", "UTC");
    timing.rules.starts_at = Some(Timestamp::from_millis(i64::MIN));
    timing.rules.ends_at = Some(Timestamp::from_millis(i64::MAX));
    assert!(timing.next_after(Timestamp::from_millis(i64::MIN)).is_some());
    timing.rules.starts_at = Some(Timestamp::from_millis(i64::MAX));
    assert_eq!(timing.next_after(Timestamp::from_millis(i64::MIN)), None);
}

#[test]
fn an_interval_begins_at_its_anchor() {
    let minute = Interval::new(60_000, at("2026-05-22T18:00:00Z")).unwrap();
    let minutely = Timing { pattern: Pattern::Interval(minute), rules: TimingRules::default() };
    assert_eq!(minutely.next_after(Timestamp::from_millis(0)), Some(minute.anchor()));
    assert_eq!(minutely.next_after(minute.anchor()), Some(at("2026-05-22T18:01:00Z")));
    assert_eq!(minutely.count_between(Timestamp::from_millis(i64::MIN), at("2026-05-22T18:01:59.999Z")), 2);
    assert_eq!(minutely.count_between(at("2026-05-22T18:01:00Z"), at("2026-05-22T18:02:00Z")), 2);
    assert_eq!(minutely.count_between(at("2026-05-22T18:01:00.001Z"), at("2026-05-22T18:01:59Z")), 0);
}

/// A field of plain values, and what only the day fields have.
fn field(min: u32, max: u32) -> impl Strategy<Value = String> {
    let value = min..=max;
    let item = prop_oneof![
        3 => Just("*".to_owned()),
        3 => value.clone().prop_map(|v| v.to_string()),
        1 => (value.clone(), value.clone()).prop_map(|(a, b)| format!("{a}-{b}")),
        1 => (1..=max - min).prop_map(|step| format!("*/{step}")),
        1 => (value.clone(), 1..=max - min).prop_map(|(a, step)| format!("{a}/{step}")),
        1 => (value.clone(), value, 1..=max - min).prop_map(|(a, b, step)| format!("{a}-{b}/{step}")),
    ];
    prop::collection::vec(item, 1..3).prop_map(|items| items.join(","))
}

prop_compose! {
    fn expressions()(
        second in prop_oneof![2 => Just(String::new()), 1 => field(0, 59).prop_map(|f| f + " ")],
        minute in field(0, 59),
        hour in field(0, 23),
        day in prop_oneof![
            3 => field(1, 31),
            1 => prop::sample::select(vec!["?", "L", "L-5", "LW", "1W", "15W,L", "31W"]).prop_map(str::to_owned),
        ],
        month in field(1, 12),
        weekday in prop_oneof![
            3 => field(0, 6),
            1 => prop::sample::select(vec!["?", "5L", "MON#1", "7#5", "FRI-MON"]).prop_map(str::to_owned),
        ],
    ) -> String {
        format!("{second}{minute} {hour} {day} {month} {weekday}")
    }
}

prop_compose! {
    fn timings()(
        (cron, day_overflow) in (expressions(), prop::sample::select(vec![DayOverflow::Skip, DayOverflow::Last]))
            .prop_filter_map("never matches", |(text, overflow)| {
                Some((CronExpression::parse_with(&text, overflow).ok()?, overflow))
            }),
        zone in prop::sample::select(Zone::names()),
        dst_gap in prop::sample::select(vec![DstGap::Shift, DstGap::Skip]),
        dst_fold in prop::sample::select(vec![DstFold::First, DstFold::Last, DstFold::Both]),
    ) -> Timing {
        let zone = Zone::named(&zone).unwrap();
        let rules = TimingRules { zone, dst_gap, dst_fold, day_overflow, ..TimingRules::default() };
        Timing { pattern: Pattern::Cron(cron), rules }
    }
}

/// 1800 to 2200.
fn times() -> impl Strategy<Value = i64> {
    -5_364_662_400_000..7_258_118_400_000_i64
}

proptest! {
    #[test]
    fn the_next_instant_is_the_first_later_one(timing in timings(), after in times(), nearer in 0.0..1.0_f64) {
        let (next, steps) = steps::of(|| timing.next_after(Timestamp::from_millis(after)));
        prop_assert!(steps <= steps::MOST, "{} steps", steps);
        prop_assume!(next.is_some());
        let next = next.unwrap().as_millis();
        prop_assert!(next > after && next % 1_000 == 0);
        // A search from anywhere in between finds the same one.
        #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "anywhere will do")]
        let between = after + ((next - after - 1) as f64 * nearer) as i64;
        prop_assert_eq!(timing.next_after(Timestamp::from_millis(between)).map(Timestamp::as_millis), Some(next));
        prop_assert!(timing.next_after(Timestamp::from_millis(next)).is_none_or(|later| later.as_millis() > next));
    }

    #[test]
    fn the_next_instant_matches_unless_it_follows_a_gap(timing in timings(), after in times()) {
        let Pattern::Cron(cron) = &timing.pattern else { unreachable!() };
        let next = timing.next_after(Timestamp::from_millis(after));
        prop_assume!(next.is_some());
        let second = next.unwrap().as_millis() / 1_000;
        let stretch = timing.rules.zone.stretch_at(second);
        let local = second + stretch.ahead;
        let TimingRules { dst_gap, day_overflow: overflow, .. } = timing.rules;
        let shifted = second == stretch.from && dst_gap == DstGap::Shift && cron.next_written(overflow, local).is_some();
        prop_assert!(cron.next_local(overflow, local) == Some(local) || shifted);
    }

    #[test]
    fn the_last_instant_has_no_later_one_in_the_range(timing in timings(), from in times(), days in 0..400_i64) {
        let (from, to) = (Timestamp::from_millis(from), Timestamp::from_millis(from + days * 86_400_000));
        let last = timing.last_between(from, to);
        match last {
            Some(last) => {
                prop_assert!((from..=to).contains(&last));
                prop_assert!(timing.next_after(last).is_none_or(|later| later > to));
                prop_assert!(timing.iter_between(last, last).eq([last]));
            }
            None => prop_assert!(timing.iter_between(from, to).next().is_none()),
        }
    }

    #[test]
    fn the_count_is_that_of_the_instants(
        timing in timings(), from in times(), days in 0..400_i64, starts in times(), cut in 0..4_u8,
    ) {
        let (from, to) = (Timestamp::from_millis(from), Timestamp::from_millis(from + days * 86_400_000));
        let mut timing = timing;
        timing.rules.starts_at = (cut == 1).then_some(from.plus_millis(starts.rem_euclid(86_400_000 * 3)));
        timing.rules.ends_at = (cut == 2).then_some(to.plus_millis(-starts.rem_euclid(86_400_000 * 3)));
        let listed = timing.iter_between(from, to).take(20_000).count() as u64;
        let counted = timing.count_between(from, to);
        prop_assert!(counted == listed || (listed == 20_000 && counted > listed), "{} counted, {} listed", counted, listed);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[-0-9*/,?LW#@A-Za-z \\PC]{0,40}") {
        if let Ok(cron) = CronExpression::parse(&text) {
            prop_assert_eq!(CronExpression::parse(cron.as_str()).unwrap(), cron);
        }
    }
}
