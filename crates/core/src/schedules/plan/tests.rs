//! Plans of a schedule, one by one and in long random lives.

mod covering;
mod lives;

use super::*;
use crate::cron::{CronExpression, Pattern, TimingRules, jitter_millis};
use crate::ids::ScheduleId;
use uuid::Uuid;

pub(super) fn id() -> ScheduleId {
    ScheduleId::from_uuid(Uuid::from_u128(7))
}

pub(super) fn at(text: &str) -> Timestamp {
    Timestamp::parse(&format!("2026-05-22T{text}Z")).unwrap()
}

/// Every minute, with the defaults of the API.
pub(super) fn minutely() -> Spec {
    Spec {
        timing: timing("* * * * *"),
        overlap: Overlap::Skip,
        catchup: CatchUp::Last,
        catchup_window_millis: 3_600_000,
        jitter_millis: 0,
        max_runs: None,
        paused: false,
    }
}

fn timing(cron: &str) -> Timing {
    Timing { pattern: Pattern::Cron(CronExpression::parse(cron).unwrap()), rules: TimingRules::default() }
}

fn secondly() -> Spec {
    Spec { timing: timing("* * * * * *"), ..minutely() }
}

fn due(next_run_at: &str) -> PlanInput {
    PlanInput { next_run_at: Some(at(next_run_at)), ..PlanInput::default() }
}

fn task(number: u128) -> TaskId {
    TaskId::from_uuid(Uuid::from_u128(number))
}

fn live(number: u128) -> LiveTask {
    LiveTask { task: task(number), stop_requested: false }
}

fn waiting(instant: &str) -> WaitingOccurrence {
    WaitingOccurrence { instant: at(instant), origin: Origin::Due }
}

fn backfilled(instant: &str) -> WaitingOccurrence {
    WaitingOccurrence { instant: at(instant), origin: Origin::Backfill }
}

/// The decisions of a plan in short form: `10:00 fired on_time`.
fn summary(plan: &Plan) -> Vec<String> {
    plan.decisions
        .iter()
        .map(|d| {
            let waited = if d.waited { "waited " } else { "" };
            format!("{} {waited}{} {}", &d.instant.to_string()[11..16], d.outcome.as_str(), d.reason.as_str())
        })
        .collect()
}

#[test]
fn before_its_time_nothing_happens() {
    let known = due("10:00:00");
    let plan = plan(id(), &minutely(), &known, at("09:59:59.999"));
    assert!(plan.is_empty(&known) && !plan.more, "{plan:?}");
    assert_eq!(plan.next_run_at, known.next_run_at);
}

#[test]
fn at_its_time_it_fires_and_moves_on() {
    let plan = plan(id(), &minutely(), &due("10:00:00"), at("10:00:00"));
    assert_eq!(summary(&plan), ["10:00 fired on_time"]);
    assert_eq!(plan.decisions[0].execute_at, Some(at("10:00:00")));
    assert_eq!((plan.next_run_at, plan.fired, plan.more), (Some(at("10:01:00")), 1, false));
}

#[test]
fn jitter_moves_the_task_and_not_the_occurrence() {
    let spec = Spec { jitter_millis: 30_000, ..minutely() };
    let plan = plan(id(), &spec, &due("10:00:00"), at("10:00:00.004"));
    let jitter = i64::try_from(jitter_millis(id(), at("10:00:00"), 30_000)).unwrap();
    assert!(jitter > 0, "a case in which there is some");
    assert_eq!(plan.decisions[0].instant, at("10:00:00"));
    assert_eq!(plan.decisions[0].execute_at, Some(at("10:00:00").plus_millis(jitter)));
}

#[test]
fn a_second_late_is_on_time_and_more_is_late() {
    let none = Spec { catchup: CatchUp::None, ..minutely() };
    assert_eq!(summary(&plan(id(), &none, &due("10:00:00"), at("10:00:01"))), ["10:00 fired on_time"]);
    assert_eq!(summary(&plan(id(), &none, &due("10:00:00"), at("10:00:01.001"))), ["10:00 missed no_catch_up"]);
}

#[test]
fn catching_up_none_last_and_all() {
    let late = |catchup| {
        let spec = Spec { catchup, catchup_window_millis: 180_000, overlap: Overlap::AllowAll, ..minutely() };
        plan(id(), &spec, &due("10:00:00"), at("10:05:00.500"))
    };
    let none = late(CatchUp::None);
    assert_eq!(summary(&none)[4..], ["10:04 missed no_catch_up", "10:05 fired on_time"]);
    assert_eq!((none.fired, none.decisions.len()), (1, 6));
    let last = late(CatchUp::Last);
    assert_eq!(
        summary(&last),
        [
            "10:00 missed outside_window",
            "10:01 missed outside_window",
            "10:02 missed outside_window",
            "10:03 coalesced left_to_last",
            "10:04 coalesced left_to_last",
            "10:05 fired on_time"
        ]
    );
    assert_eq!(last.fired, 1);
    let all = late(CatchUp::All);
    assert_eq!(
        summary(&all)[2..],
        ["10:02 missed outside_window", "10:03 fired caught_up", "10:04 fired caught_up", "10:05 fired on_time"]
    );
    for plan in [none, last, all] {
        assert_eq!((plan.next_run_at, plan.more), (Some(at("10:06:00")), false));
    }
}

#[test]
fn the_last_late_instant_within_the_window_fires() {
    let decided = |window| {
        let spec = Spec { catchup_window_millis: window, ..minutely() };
        summary(&plan(id(), &spec, &due("10:04:00"), at("10:05:30")))
    };
    assert_eq!(decided(3_600_000), ["10:04 coalesced left_to_last", "10:05 fired caught_up"]);
    assert_eq!(decided(30_000), ["10:04 missed outside_window", "10:05 fired caught_up"]);
    assert_eq!(decided(29_999), ["10:04 missed outside_window", "10:05 missed outside_window"]);
    assert_eq!(decided(0), ["10:04 missed outside_window", "10:05 missed outside_window"]);
    assert_eq!(decided(u64::MAX), decided(3_600_000));
}

/// A plan in which two minutes are caught up while a task is live.
fn overlapping(overlap: Overlap, known: PlanInput) -> Plan {
    let spec = Spec { overlap, catchup: CatchUp::All, ..minutely() };
    plan(id(), &spec, &PlanInput { live: vec![live(1)], ..known }, at("10:01:00"))
}

#[test]
fn overlap_skip() {
    let plan = overlapping(Overlap::Skip, due("10:00:00"));
    assert_eq!(summary(&plan), ["10:00 skipped previous_live", "10:01 skipped previous_live"]);
    assert_eq!(plan.fired, 0);
    // Without a live task the first fires, and its task is live when the second is decided.
    let idle = Spec { catchup: CatchUp::All, ..minutely() };
    let plan = super::plan(id(), &idle, &due("10:00:00"), at("10:01:00"));
    assert_eq!(summary(&plan), ["10:00 fired caught_up", "10:01 skipped previous_live"]);
}

#[test]
fn overlap_buffer_one() {
    let plan = overlapping(Overlap::BufferOne, due("10:00:00"));
    assert_eq!(summary(&plan), ["10:00 buffered waits_for_previous", "10:01 skipped one_waits"]);
    assert!(!plan.more);
    let known =
        PlanInput { next_run_at: Some(at("10:02:00")), buffered: vec![waiting("10:00:00")], ..PlanInput::default() };
    let spec = Spec { overlap: Overlap::BufferOne, ..minutely() };
    let plan = super::plan(id(), &spec, &known, at("10:01:30"));
    assert_eq!(summary(&plan), ["10:00 waited fired previous_ended"]);
    assert_eq!(plan.decisions[0].execute_at, Some(at("10:01:30")), "not before now");
}

#[test]
fn overlap_buffer_all() {
    let known = PlanInput { buffered: vec![waiting("09:58:00"), waiting("09:59:00")], ..due("10:00:00") };
    let plan = overlapping(Overlap::BufferAll, known.clone());
    assert_eq!(summary(&plan), ["10:00 buffered waits_for_previous", "10:01 buffered waits_for_previous"]);
    let spec = Spec { overlap: Overlap::BufferAll, catchup: CatchUp::All, ..minutely() };
    let plan = super::plan(id(), &spec, &known, at("10:00:00"));
    assert_eq!(summary(&plan), ["09:58 waited fired previous_ended", "10:00 buffered waits_for_previous"]);
}

#[test]
fn a_buffer_is_bounded() {
    let buffered: Vec<_> = (0..)
        .take(PLAN_MAX)
        .map(|n| WaitingOccurrence { instant: at("00:00:00").plus_millis(n * 1_000), origin: Origin::Due })
        .collect();
    let plan = overlapping(Overlap::BufferAll, PlanInput { buffered, ..due("10:00:00") });
    assert_eq!(summary(&plan), ["10:00 skipped buffer_full", "10:01 skipped buffer_full"]);
}

#[test]
fn overlap_cancel_other() {
    let plan = overlapping(Overlap::CancelOther, due("10:00:00"));
    assert_eq!(summary(&plan), ["10:00 skipped superseded", "10:01 buffered waits_for_stop"]);
    assert_eq!((plan.stop.as_slice(), plan.end.as_slice()), (&[task(1)][..], &[][..]));

    let spec = Spec { overlap: Overlap::CancelOther, ..minutely() };
    let stopping = LiveTask { stop_requested: true, ..live(1) };
    let known = PlanInput { buffered: vec![waiting("10:01:00")], live: vec![stopping], ..due("10:02:00") };
    let plan = super::plan(id(), &spec, &known, at("10:01:30"));
    assert!(plan.is_empty(&known), "the live task was asked to stop and has not stopped: {plan:?}");
    let forgotten = PlanInput { live: vec![live(1)], ..known.clone() };
    assert_eq!(
        super::plan(id(), &spec, &forgotten, at("10:01:30")).stop,
        [task(1)],
        "asked again until the request is stored"
    );
    let plan = super::plan(id(), &spec, &known, at("10:02:00"));
    assert_eq!(summary(&plan), ["10:01 waited skipped superseded", "10:02 buffered waits_for_stop"]);
    let stopped = PlanInput { live: Vec::new(), ..known };
    let plan = super::plan(id(), &spec, &stopped, at("10:01:30"));
    assert_eq!(summary(&plan), ["10:01 waited fired previous_ended"]);
    let plan = super::plan(id(), &spec, &stopped, at("10:02:00"));
    assert_eq!(summary(&plan), ["10:01 waited skipped superseded", "10:02 fired on_time"]);
}

#[test]
fn overlap_terminate_other() {
    let plan = overlapping(Overlap::TerminateOther, due("10:00:00"));
    assert_eq!(summary(&plan), ["10:00 skipped superseded", "10:01 fired on_time"]);
    assert_eq!((plan.stop.as_slice(), plan.end.as_slice()), (&[][..], &[task(1)][..]));
}

#[test]
fn overlap_allow_all() {
    let known = PlanInput { buffered: vec![waiting("09:59:00"), backfilled("08:00:00")], ..due("10:00:00") };
    let plan = overlapping(Overlap::AllowAll, known);
    assert_eq!(
        summary(&plan),
        [
            "09:59 waited fired overlap_allowed",
            "10:00 fired caught_up",
            "10:01 fired on_time",
            "08:00 waited fired backfilled"
        ]
    );
}

/// The policy was edited while several waited.
#[test]
fn the_last_waiting_occurrence_takes_over() {
    let by_hand = WaitingOccurrence { origin: Origin::Manual, ..waiting("09:58:30") };
    let buffered = vec![waiting("09:58:00"), waiting("09:59:00"), by_hand, backfilled("08:00:00")];
    let superseded = ["09:58 waited skipped superseded", "09:58 waited skipped superseded"];
    for (overlap, live_until_now, then) in [
        (Overlap::CancelOther, vec![], Some("09:59 waited fired previous_ended")),
        (Overlap::CancelOther, vec![live(1)], None),
        (Overlap::TerminateOther, vec![live(1)], Some("09:59 waited fired previous_ended")),
    ] {
        let known = PlanInput { buffered: buffered.clone(), live: live_until_now.clone(), ..due("10:00:00") };
        let plan = super::plan(id(), &Spec { overlap, ..minutely() }, &known, at("09:59:30"));
        assert_eq!(summary(&plan), superseded.into_iter().chain(then).collect::<Vec<_>>(), "{overlap:?}");
        let ended: Vec<_> = live_until_now.iter().map(|live| live.task).collect();
        let in_the_way = if overlap == Overlap::CancelOther { &plan.stop } else { &plan.end };
        assert_eq!(in_the_way, &ended, "{overlap:?}");
    }
}

#[test]
fn a_backfill_fires_after_due_instants_one_at_a_time() {
    let buffered = vec![backfilled("07:00:00"), backfilled("08:00:00")];
    let known = PlanInput { buffered, ..due("10:00:00") };
    for overlap in
        [Overlap::Skip, Overlap::BufferOne, Overlap::BufferAll, Overlap::CancelOther, Overlap::TerminateOther]
    {
        let spec = Spec { overlap, ..minutely() };
        let plan = super::plan(id(), &spec, &known, at("10:00:00"));
        assert_eq!(summary(&plan), ["10:00 fired on_time"], "{overlap:?}");
        let plan = super::plan(id(), &spec, &known, at("09:59:00"));
        assert_eq!(summary(&plan), ["07:00 waited fired backfilled"], "{overlap:?}");
        assert!(!plan.more);
        let busy = PlanInput { live: vec![live(1)], ..known.clone() };
        assert!(super::plan(id(), &spec, &busy, at("09:59:00")).is_empty(&busy), "{overlap:?}");
    }
}

#[test]
fn only_backfills_are_withdrawn() {
    let by_hand = WaitingOccurrence { origin: Origin::Manual, ..waiting("09:58:00") };
    let buffered = vec![waiting("09:59:00"), by_hand, backfilled("07:00:00"), backfilled("08:00:00")];
    let plan = withdraw(&PlanInput { buffered, live: vec![live(1)], ..due("10:00:00") });
    assert_eq!(summary(&plan), ["07:00 waited skipped withdrawn", "08:00 waited skipped withdrawn"]);
    assert_eq!((plan.next_run_at, plan.stop.len()), (Some(at("10:00:00")), 0));
}

#[test]
fn a_pause_does_not_hold_manual_runs() {
    let by_hand = WaitingOccurrence { origin: Origin::Manual, ..waiting("09:58:00") };
    for overlap in [Overlap::BufferOne, Overlap::BufferAll, Overlap::CancelOther] {
        let spec = Spec { paused: true, overlap, ..minutely() };
        let known = PlanInput { buffered: vec![waiting("09:59:00"), by_hand], ..due("10:00:00") };
        let plan = super::plan(id(), &spec, &known, at("12:00:00"));
        assert_eq!(summary(&plan), ["09:58 waited fired previous_ended"], "{overlap:?}");
        assert_eq!((plan.next_run_at, plan.more), (Some(at("10:00:00")), false));
        let busy = PlanInput { live: vec![live(1)], ..known.clone() };
        assert_eq!(summary(&super::plan(id(), &spec, &busy, at("12:00:00"))), [""; 0], "{overlap:?}");
        // Due occurrences wait because of the pause, and not for a task.
        let known = PlanInput { buffered: vec![waiting("09:59:00")], ..due("10:00:00") };
        assert_eq!(
            summary(&trigger(id(), &spec, &known, None, at("12:00:00"))),
            ["12:00 fired triggered"],
            "{overlap:?}"
        );
    }
}

#[test]
fn waiting_manual_runs_are_reserved_too() {
    let by_hand = |instant| WaitingOccurrence { origin: Origin::Manual, ..waiting(instant) };
    let spec = Spec { max_runs: Some(3), overlap: Overlap::BufferAll, ..minutely() };
    let buffered = vec![by_hand("09:58:00"), by_hand("09:59:00")];
    let known = PlanInput { run_count: 1, buffered, live: vec![live(1)], ..due("10:00:00") };
    let plan = plan(id(), &spec, &known, at("10:00:00"));
    assert_eq!((summary(&plan), plan.next_run_at), (Vec::new(), None), "three runs were made or wait");
}

#[test]
fn instants_during_a_pause_are_skipped() {
    let known = PlanInput { buffered: vec![waiting("09:59:00")], ..due("10:00:00") };
    let paused = Spec { paused: true, ..minutely() };
    let plan = plan(id(), &paused, &known, at("12:00:00"));
    assert!(plan.is_empty(&known) && !plan.more, "{plan:?}");
    let plan = resume(id(), &minutely(), &known, at("10:02:00"));
    assert_eq!(summary(&plan), ["10:00 skipped paused", "10:01 skipped paused", "10:02 skipped paused"]);
    assert_eq!(plan.next_run_at, Some(at("10:03:00")));
    let long = resume(id(), &minutely(), &known, at("10:02:00").plus_millis(365 * 86_400_000));
    assert_eq!(long.decisions.len(), PLAN_MAX);
    let rest = long.decisions[PLAN_MAX - 1].covers.unwrap();
    let (year, listed) = (365 * 86_400_000, 999);
    assert_eq!((rest.at_least, rest.until), (365 * 1_440 + 3 - listed, at("10:02:00.001").plus_millis(year)));
    assert_eq!(long.next_run_at, Some(at("10:03:00").plus_millis(365 * 86_400_000)));
}

#[test]
fn after_max_runs_it_has_ended() {
    let spec = Spec { max_runs: Some(3), overlap: Overlap::AllowAll, catchup: CatchUp::All, ..minutely() };
    let plan = plan(id(), &spec, &PlanInput { run_count: 1, ..due("10:00:00") }, at("10:05:00"));
    assert_eq!(summary(&plan), ["10:00 fired caught_up", "10:01 fired caught_up"]);
    assert_eq!((plan.next_run_at, plan.more), (None, false));
    let over = super::plan(id(), &spec, &PlanInput { run_count: 3, ..due("10:00:00") }, at("10:05:00"));
    assert_eq!((summary(&over), over.next_run_at), (Vec::<String>::new(), None));
    assert_eq!(first(&spec, 3, at("10:00:00")), None);
    assert_eq!(first(&spec, 2, at("10:00:00")), Some(at("10:01:00")));
}

#[test]
fn a_waiting_occurrence_has_its_run_reserved() {
    let spec = Spec { max_runs: Some(2), overlap: Overlap::BufferAll, catchup: CatchUp::All, ..minutely() };
    let known = PlanInput { run_count: 1, live: vec![live(1)], ..due("10:00:00") };
    let plan = plan(id(), &spec, &known, at("10:05:00"));
    assert_eq!(summary(&plan), ["10:00 buffered waits_for_previous"]);
    assert_eq!(plan.next_run_at, None);
    // The limit was lowered, or used up by manual runs.
    let known =
        PlanInput { run_count: 2, buffered: vec![waiting("10:00:00"), backfilled("09:00:00")], ..PlanInput::default() };
    let plan = super::plan(id(), &spec, &known, at("10:05:00"));
    assert_eq!(summary(&plan), ["10:00 waited skipped runs_used_up", "09:00 waited fired backfilled"]);
}

#[test]
fn an_end_ends_it() {
    let mut spec = minutely();
    spec.timing.rules.ends_at = Some(at("10:01:00"));
    let plan = plan(id(), &spec, &due("10:01:00"), at("10:01:00"));
    assert_eq!((summary(&plan), plan.next_run_at), (vec!["10:01 fired on_time".to_owned()], None));
}

#[test]
fn a_trigger_fires_now_whatever_the_time() {
    let spec = Spec { paused: true, max_runs: Some(1), jitter_millis: 60_000, ..minutely() };
    let known = PlanInput { run_count: 1, ..due("10:05:00") };
    let plan = trigger(id(), &spec, &known, None, at("10:00:30.123"));
    assert_eq!(summary(&plan), ["10:00 fired triggered"]);
    let now = at("10:00:30.123");
    assert_eq!(plan.decisions[0].instant, now);
    assert_eq!(plan.decisions[0].execute_at, Some(now));
    assert_eq!((plan.decisions[0].origin, plan.next_run_at), (Origin::Manual, known.next_run_at));
    // Its instant is never one of the schedule's own.
    let plan = trigger(id(), &minutely(), &due("10:00:00"), None, at("10:00:00"));
    assert_eq!(plan.decisions[0].instant, at("10:00:00.001"));
    assert_eq!(plan.next_run_at, Some(at("10:00:00")));
    let twice = PlanInput { buffered: vec![waiting("10:00:00.001")], ..due("10:01:00") };
    assert_eq!(trigger(id(), &minutely(), &twice, None, at("10:00:00")).decisions[0].instant, at("10:00:00.002"));
    for (newest, instant) in
        [("10:00:00.001", "10:00:00.002"), ("10:00:00.700", "10:00:00.701"), ("11:00:00", "10:00:00.500")]
    {
        let now = if newest == "11:00:00" { at("10:00:00.500") } else { at("10:00:00") };
        let plan = trigger(id(), &minutely(), &due("10:00:00"), Some(at(newest)), now);
        assert_eq!(plan.decisions[0].instant, at(instant), "{newest}");
    }
    let set_back = trigger(id(), &minutely(), &due("10:00:00"), Some(at("11:00:00")), at("10:00:00"));
    assert_eq!(set_back.decisions[0].instant, at("10:00:00.001"), "not in the place of the next run");
}

#[test]
fn a_trigger_follows_the_overlap_policy() {
    for (overlap, expected, stop, end) in [
        (Overlap::Skip, "10:00 skipped previous_live", vec![], vec![]),
        (Overlap::BufferOne, "10:00 buffered waits_for_previous", vec![], vec![]),
        (Overlap::BufferAll, "10:00 buffered waits_for_previous", vec![], vec![]),
        (Overlap::CancelOther, "10:00 buffered waits_for_stop", vec![task(1)], vec![]),
        (Overlap::TerminateOther, "10:00 fired triggered", vec![], vec![task(1)]),
        (Overlap::AllowAll, "10:00 fired triggered", vec![], vec![]),
    ] {
        let known = PlanInput { live: vec![live(1)], ..due("10:05:00") };
        let plan = trigger(id(), &Spec { overlap, ..minutely() }, &known, None, at("10:00:30"));
        assert_eq!((summary(&plan), plan.stop, plan.end), (vec![expected.to_owned()], stop, end), "{overlap:?}");
    }
}

#[test]
fn a_backfill_is_bounded() {
    let spec = minutely();
    assert_eq!(
        backfill(&spec, at("10:00:00"), at("10:02:00")).unwrap(),
        [at("10:00:00"), at("10:01:00"), at("10:02:00")]
    );
    assert_eq!(backfill(&spec, at("10:02:00"), at("10:00:00")), Ok(vec![]));
    let until = at("10:00:00").plus_millis(9_999 * 60_000);
    assert_eq!(backfill(&spec, at("10:00:00"), until).unwrap().len(), 10_000);
    let refused = backfill(&spec, at("10:00:00"), Timestamp::MAX).unwrap_err();
    assert_eq!(refused, TooMany { until });
    assert_eq!(
        refused.to_string(),
        "has more than 10000 instants; ask for a shorter time, the first 10000 are up to 2026-05-29T08:39:00.000Z"
    );
}

/// Makes plans until there is nothing more to decide. Returns the decisions and the number of
/// plans.
fn until_done(spec: &Spec, mut known: PlanInput, now: Timestamp) -> (Vec<Decision>, usize) {
    let mut decisions = Vec::new();
    for plans in 1..100 {
        let plan = plan(id(), spec, &known, now);
        assert!(plan.decisions.len() <= PLAN_MAX);
        assert!(plan.next_run_at.is_none_or(|next| Some(next) >= known.next_run_at));
        known.next_run_at = plan.next_run_at;
        known.run_count += plan.fired;
        decisions.extend(plan.decisions);
        if !plan.more {
            assert!(known.next_run_at.is_none_or(|next| next > now));
            return (decisions, plans);
        }
    }
    panic!("a hundred plans were not enough");
}

#[test]
fn a_day_without_a_leader_is_recorded_minute_by_minute() {
    let now = at("10:00:00.020").plus_millis(86_400_000);
    for (catchup, fired, overlap) in [
        (CatchUp::None, 1, Overlap::AllowAll),
        (CatchUp::Last, 1, Overlap::Skip),
        (CatchUp::All, 60, Overlap::AllowAll),
        (CatchUp::All, 1, Overlap::Skip),
    ] {
        let spec = Spec { overlap, catchup, ..minutely() };
        let (decisions, plans) = until_done(&spec, due("10:00:00"), now);
        assert_eq!((decisions.len(), plans), (1_441, 2), "{catchup:?}");
        assert!(decisions.is_sorted_by(|a, b| a.instant < b.instant));
        assert!(decisions.iter().all(|decision| decision.covers.is_none()));
        let count = decisions.iter().filter(|d| d.outcome == OccurrenceOutcome::Fired).count();
        assert_eq!(count, fired, "{catchup:?} {overlap:?}");
    }
}

#[test]
fn a_clock_in_the_year_2200_neither_loops_nor_fills_the_store() {
    let now = Timestamp::parse("2200-01-01T00:00:00Z").unwrap();
    for (catchup, last_plans) in [(CatchUp::None, 2), (CatchUp::Last, 6), (CatchUp::All, 6)] {
        let spec = Spec { catchup, overlap: Overlap::AllowAll, ..secondly() };
        let (decisions, plans) = until_done(&spec, due("10:00:00"), now);
        assert!(plans <= last_plans && decisions.len() <= 5_000, "{catchup:?}: {plans}, {}", decisions.len());
        let (first, rest) = decisions.split_at(PLAN_MAX - 1);
        assert!(first.iter().all(|d| d.outcome == OccurrenceOutcome::Missed && d.covers.is_none()));
        let covers = rest[0].covers.unwrap();
        assert_eq!(rest[0].outcome, OccurrenceOutcome::Missed);
        let instants: u64 = decisions.iter().map(|d| d.covers.map_or(1, |covers| covers.at_least)).sum();
        assert_eq!(instants, (now.millis_since(at("10:00:00")) / 1_000 + 1).cast_unsigned(), "none is left out");
        // The next record begins where the covered instants end.
        assert_eq!(rest[1].instant, Timestamp::from_millis(covers.until.as_millis() / 1_000 * 1_000));
        assert_eq!(rest.last().unwrap().instant, now);
    }
    // A window of years, of which only the last instant fires, takes as few plans.
    let spec = Spec { catchup_window_millis: u64::MAX, ..secondly() };
    let (decisions, plans) = until_done(&spec, due("10:00:00"), now);
    assert_eq!((plans, decisions.len()), (2, PLAN_MAX + 1));
    assert_eq!(decisions[PLAN_MAX - 1].outcome, OccurrenceOutcome::Coalesced);
    assert_eq!(decisions[PLAN_MAX].execute_at, Some(now));
}

#[test]
fn the_ends_of_time_are_no_problem() {
    for now in [i64::MIN, -1, 0, i64::MAX] {
        for next in [None, Some(i64::MIN), Some(0), Some(i64::MAX)] {
            for catchup in [CatchUp::None, CatchUp::Last, CatchUp::All] {
                let spec = Spec { catchup, jitter_millis: u64::MAX, catchup_window_millis: u64::MAX, ..minutely() };
                let known = PlanInput { next_run_at: next.map(Timestamp::from_millis), ..PlanInput::default() };
                let now = Timestamp::from_millis(now);
                for made in [
                    plan(id(), &spec, &known, now),
                    resume(id(), &spec, &known, now),
                    trigger(id(), &spec, &known, None, now),
                ] {
                    assert!(made.decisions.len() <= PLAN_MAX);
                }
            }
        }
    }
}

#[test]
fn every_word_is_read_back_and_no_two_are_alike() {
    for reason in OccurrenceReason::ALL.iter().copied() {
        assert_eq!(OccurrenceReason::from_name(reason.as_str()), Some(reason));
        assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{}\"", reason.as_str()));
        assert!(reason.sentence().ends_with('.'));
    }
    assert_eq!(OccurrenceReason::from_name("because"), None);
}

#[test]
fn a_spec_survives_its_storage() {
    let spec = Spec { max_runs: Some(3), overlap: Overlap::TerminateOther, catchup: CatchUp::None, ..minutely() };
    let json = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<Spec>(&json).unwrap(), spec);
    assert!(json.contains("\"terminate_other\"") && json.contains("\"none\""), "{json}");
}
