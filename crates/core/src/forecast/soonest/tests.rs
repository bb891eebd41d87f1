use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::cron::{CronExpression, Pattern, Timing, TimingRules};
use crate::schedules::TaskNames;
use crate::schedules::plan::{CatchUp, Overlap, Spec};

/// 2026-05-22T18:00:00Z.
const START: i64 = 1_779_472_800_000;
const MINUTE: i64 = 60_000;

fn at(minutes: i64) -> Timestamp {
    Timestamp::from_millis(START + minutes * MINUTE)
}

fn schedule(number: u128, cron: &str, max_runs: Option<u64>) -> UpcomingSchedule {
    let pattern = Pattern::Cron(CronExpression::parse(cron).expect("an expression"));
    let timing = Timing { pattern, rules: TimingRules::default() };
    UpcomingSchedule {
        id: ScheduleId::from_uuid(Uuid::from_u128(number)),
        name: number.to_string(),
        task: TaskNames { kind: "t".to_owned(), queue: None },
        next_run_at: timing.next_after(at(0)).expect("it goes on"),
        spec: Spec {
            timing,
            overlap: Overlap::Skip,
            catchup: CatchUp::Last,
            catchup_window_millis: 0,
            jitter_millis: 0,
            max_runs,
            paused: false,
        },
        run_count: 0,
        reserved: 0,
    }
}

fn minutes(schedule: &UpcomingSchedule, after: UpcomingPosition, most: usize) -> Vec<i64> {
    instants_behind(schedule, at(0), after).take(most).map(|one| (one.as_millis() - START) / MINUTE).collect()
}

#[test]
fn runs_before_a_position_are_used_up() {
    let five = schedule(7, "*/10 * * * *", Some(5));
    assert_eq!(minutes(&five, UpcomingPosition::before(at(0)), 9), [10, 20, 30, 40, 50]);
    assert_eq!(minutes(&five, UpcomingPosition::before(at(30)), 9), [30, 40, 50]);
    assert_eq!(minutes(&five, UpcomingPosition::before(at(51)), 9), [0; 0]);
    let mut pinned = five.clone();
    pinned.next_run_at = at(13);
    assert_eq!(minutes(&pinned, UpcomingPosition::before(at(0)), 9), [13, 20, 30, 40, 50]);
    assert_eq!(minutes(&pinned, UpcomingPosition::before(at(20)), 9), [20, 30, 40, 50]);
    pinned.reserved = 4;
    assert_eq!(minutes(&pinned, UpcomingPosition::before(at(0)), 9), [13]);
}

#[test]
fn a_position_parts_what_is_due_at_once() {
    let seventh = schedule(7, "*/10 * * * *", None);
    let behind = |of| minutes(&seventh, UpcomingPosition { at: at(10), of }, 1);
    let instant = |number| UpcomingKey::Instant(ScheduleId::from_uuid(Uuid::from_u128(number)));
    assert_eq!((behind(instant(6)), behind(instant(7)), behind(instant(8))), (vec![10], vec![20], vec![20]));
    assert_eq!(behind(UpcomingKey::Task(i64::MIN)), [20], "tasks come after instants");
}

proptest! {
    /// Whatever the size of the pages, they are together what one page has.
    #[test]
    fn pages_have_no_gap_and_no_repeat(
        crons in prop::collection::vec(
            (prop::sample::select(vec!["* * * * *", "*/7 * * * *", "0 * * * *", "*/10 18 * * *"]), prop::option::of(1..9_u64)), 1..6),
        tasks in prop::collection::vec(1..100_i64, 0..20),
        most in 1..9_usize,
    ) {
        let all: Vec<UpcomingSchedule> =
            (1..).zip(&crons).map(|(number, (cron, max_runs))| schedule(number, cron, *max_runs)).collect();
        let page = |after: UpcomingPosition, most: usize| {
            let mut soonest = Soonest::new(most);
            for (number, minute) in (0..).zip(&tasks) {
                let position = UpcomingPosition { at: at(*minute), of: UpcomingKey::Task(number) };
                if position > after {
                    soonest.add(position, ());
                }
            }
            for schedule in &all {
                soonest.add_instants(schedule, at(0), after, at(100), &());
            }
            soonest.into_items().map(|(position, ())| position).collect::<Vec<_>>()
        };
        let whole = page(UpcomingPosition::before(at(0)), usize::MAX);
        let (mut paged, mut after) = (Vec::new(), UpcomingPosition::before(at(0)));
        loop {
            let some = page(after, most);
            prop_assert!(some.len() <= most);
            let Some(last) = some.last().copied() else { break };
            after = last;
            paged.extend(some);
        }
        prop_assert_eq!(paged, whole);
    }
}
