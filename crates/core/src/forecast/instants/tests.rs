//! Windows over schedules, and random ones compared with a count of each schedule by itself.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::cron::{CronExpression, Interval, Pattern, Timing, TimingRules};
use crate::schedules::plan::{CatchUp, Overlap};

/// 2026-05-22T18:00:00Z.
const START: i64 = 1_779_472_800_000;

const MANY: usize = 1_000_000;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(START + millis)
}

/// A schedule whose next instant is the first after `at(after)`.
fn upcoming(number: u128, pattern: Pattern, after: i64) -> UpcomingSchedule {
    let spec = Spec {
        timing: Timing { pattern, rules: TimingRules::default() },
        overlap: Overlap::Skip,
        catchup: CatchUp::Last,
        catchup_window_millis: 3_600_000,
        jitter_millis: 0,
        max_runs: None,
        paused: false,
    };
    let next_run_at = spec.timing.next_after(at(after)).expect("it goes on");
    UpcomingSchedule {
        id: ScheduleId::from_uuid(Uuid::from_u128(number)),
        name: number.to_string(),
        task: TaskNames { kind: "t".to_owned(), queue: None },
        spec,
        next_run_at,
        run_count: 0,
        reserved: 0,
    }
}

fn cron(expression: &str) -> UpcomingSchedule {
    upcoming(7, Pattern::Cron(CronExpression::parse(expression).expect("it is one")), 0)
}

fn with(schedule: UpcomingSchedule, change: impl FnOnce(&mut UpcomingSchedule)) -> UpcomingSchedule {
    let mut schedule = schedule;
    change(&mut schedule);
    schedule
}

/// A window of this many minutes, from the one after now on.
fn window(now: Timestamp, minutes: i64) -> Window {
    let from = Minute::of(now).plus(1);
    Window { now, from, to: from.plus(minutes) }
}

fn counts(schedules: &[UpcomingSchedule], window: &Window) -> Vec<(i64, u64)> {
    let found = instants(schedules, window, MANY);
    assert_eq!(found.until, None);
    found.minutes.iter().map(|(minute, count)| (minute.number() - window.from.number(), *count)).collect()
}

#[test]
fn every_second_is_sixty_a_minute_for_a_day() {
    let found = counts(&[cron("* * * * * *")], &window(at(30_500), 24 * 60));
    assert_eq!(found.len(), 24 * 60);
    assert!(found.iter().all(|(_, count)| *count == 60));
}

#[test]
fn schedules_add_up_in_their_minutes() {
    let schedules = [cron("*/5 * * * *"), cron("0 */10 * * * *"), cron("30 * * * *")];
    let found = counts(&schedules, &window(at(0), 31));
    // From 18:01 on: :05, :10 twice, :15, :20 twice, :25, :30 three times.
    assert_eq!(found, [(4, 1), (9, 2), (14, 1), (19, 2), (24, 1), (29, 3)]);
}

#[test]
fn the_current_minute_and_the_end_are_not_counted() {
    let found = counts(&[cron("* * * * *")], &window(at(0), 3));
    assert_eq!(found, [(0, 1), (1, 1), (2, 1)]);
    assert_eq!(counts(&[cron("* * * * *")], &window(at(59_999), 3)), [(0, 1), (1, 1), (2, 1)]);
}

#[test]
fn an_instant_counts_where_its_jitter_puts_it() {
    let schedule = with(cron("* * * * *"), |schedule| schedule.spec.jitter_millis = 600_000);
    let window = window(at(1), 60);
    let mut expected: BTreeMap<i64, u64> = BTreeMap::new();
    // Instants from 18:01 on are undecided. Jitter may move one out of the first minute.
    for number in 1..=60 {
        let instant = at(number * 60_000);
        let jitter = i64::try_from(jitter_millis(schedule.id, instant, 600_000)).unwrap();
        let minute = Minute::of(instant.plus_millis(jitter)).number() - window.from.number();
        if (0..60).contains(&minute) {
            *expected.entry(minute).or_default() += 1;
        }
    }
    assert_eq!(counts(&[schedule], &window), expected.into_iter().collect::<Vec<_>>());
}

#[test]
fn runs_and_ends_and_pauses_are_respected() {
    let five = with(cron("* * * * *"), |schedule| (schedule.spec.max_runs, schedule.run_count) = (Some(8), 3));
    assert_eq!(counts(&[five], &window(at(0), 60)).len(), 5);
    let waiting = with(cron("* * * * *"), |schedule| {
        (schedule.spec.max_runs, schedule.run_count, schedule.reserved) = (Some(8), 3, 4);
    });
    assert_eq!(
        counts(std::slice::from_ref(&waiting), &window(at(0), 60)).len(),
        1,
        "the runs of the waiting ones are reserved"
    );
    let all_wait = with(waiting, |schedule| schedule.reserved = 9);
    assert_eq!(counts(&[all_wait], &window(at(0), 60)), []);
    let used_up = with(cron("* * * * *"), |schedule| (schedule.spec.max_runs, schedule.run_count) = (Some(3), 3));
    let paused = with(cron("* * * * *"), |schedule| schedule.spec.paused = true);
    assert_eq!(counts(&[used_up, paused], &window(at(0), 60)), []);
    let ends = with(cron("* * * * *"), |schedule| schedule.spec.timing.rules.ends_at = Some(at(180_000)));
    assert_eq!(counts(&[ends], &window(at(0), 60)).len(), 3);
}

#[test]
fn a_fired_instant_is_not_counted_again() {
    let fired = with(cron("* * * * *"), |schedule| schedule.next_run_at = at(180_000));
    assert_eq!(counts(&[fired], &window(at(0), 4)), [(2, 1), (3, 1)]);
}

#[test]
fn overdue_instants_are_left_out() {
    let late = with(cron("* * * * * *"), |schedule| schedule.next_run_at = at(-1_000_000_000_000));
    let found = instants(&[late], &window(at(0), 2), 200);
    assert_eq!((found.until, found.minutes.into_values().collect::<Vec<_>>()), (None, vec![60, 60]));
}

#[test]
fn the_stored_instant_is_pinned() {
    let pinned = with(cron("0 * * * *"), |schedule| schedule.next_run_at = at(120_500));
    assert_eq!(counts(&[pinned], &window(at(0), 60)), [(1, 1), (59, 1)]);
}

#[test]
fn too_many_instants_cut_the_end_of_the_window() {
    let schedules = [cron("* * * * * *"), cron("* * * * *"), cron("0 0 1 1 *")];
    let window = window(at(0), 1_000);
    let found = instants(&schedules, &window, 6_100);
    let until = found.until.expect("there are 61,000");
    assert!((window.from.plus(98)..window.from.plus(100)).contains(&until), "{until:?}");
    let whole: Vec<(Minute, u64)> = found.minutes.into_iter().collect();
    let minutes = usize::try_from(until.number() - window.from.number()).unwrap();
    assert_eq!(whole.len(), minutes, "every minute before it is complete");
    assert!(whole.iter().all(|(minute, count)| *minute < until && *count == 61), "{whole:?}");
}

fn any_upcoming() -> impl Strategy<Value = UpcomingSchedule> {
    let pattern = prop_oneof![
        prop::sample::select(vec!["* * * * * *", "*/7 * * * * *", "*/3 * * * *", "15 */2 * * *", "0 0 1 1 *"])
            .prop_map(|text| Pattern::Cron(CronExpression::parse(text).expect("it is one"))),
        (1_000..400_000_u64).prop_map(|millis| Pattern::Interval(Interval::new(millis, at(0)).expect("it is one"))),
    ];
    let runs = (prop::option::of(0..50_u64), 0..10_u64, 0..10_u64);
    let rest = (-100_000..100_000_i64, 0..300_000_u64, runs);
    (any::<u128>(), pattern, rest).prop_map(|(number, pattern, (after, jitter, runs))| {
        with(upcoming(number, pattern, after), |schedule| {
            schedule.spec.jitter_millis = jitter / 2 * (jitter % 2);
            (schedule.spec.max_runs, schedule.run_count, schedule.reserved) = runs;
        })
    })
}

/// One schedule after the other, every instant by the engine's own iterator.
fn naive(schedules: &[UpcomingSchedule], window: &Window) -> BTreeMap<Minute, u64> {
    let mut minutes = BTreeMap::new();
    for schedule in schedules {
        let first = schedule.next_run_at.max(window.now.plus_millis(-GRACE_MILLIS));
        let runs =
            schedule.spec.max_runs.map_or(u64::MAX, |max| max.saturating_sub(schedule.run_count + schedule.reserved));
        let all = schedule.spec.timing.iter_between(first, window.to.begins());
        for instant in all.take(usize::try_from(runs).unwrap_or(usize::MAX)) {
            let minute = Minute::of(due_at(schedule, instant));
            if window.from <= minute && minute < window.to {
                *minutes.entry(minute).or_insert(0) += 1;
            }
        }
    }
    minutes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn together_they_are_the_sum_of_each(schedules in prop::collection::vec(any_upcoming(), 0..6), minutes in 1..90_i64) {
        let window = window(at(12_345), minutes);
        let found = instants(&schedules, &window, MANY);
        prop_assert_eq!(found.until, None);
        prop_assert_eq!(found.minutes, naive(&schedules, &window));
    }

    #[test]
    fn counts_before_the_cut_are_right(schedules in prop::collection::vec(any_upcoming(), 1..6), most in 0..500_usize) {
        let window = window(at(12_345), 60);
        let found = instants(&schedules, &window, most);
        let mut whole = naive(&schedules, &window);
        if let Some(until) = found.until {
            drop(whole.split_off(&until));
        }
        prop_assert_eq!(found.minutes, whole);
    }
}
