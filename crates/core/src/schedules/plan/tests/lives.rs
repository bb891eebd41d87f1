//! Random lives of a schedule: plans at any time, tasks that end at any time, edits, pauses and
//! triggers; and the properties that all of them have.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// What happens next.
#[derive(Clone, Debug)]
enum Act {
    /// Time passes, and the schedule is planned.
    Pass(i64),
    /// The oldest live task finishes.
    Ends,
    /// The tasks that were asked to stop have stopped.
    Stopped,
    Trigger,
    Pause,
    Resume,
    Backfill(i64),
    Overlap(Overlap),
}

const OVERLAPS: [Overlap; 6] = [
    Overlap::Skip,
    Overlap::BufferOne,
    Overlap::BufferAll,
    Overlap::CancelOther,
    Overlap::TerminateOther,
    Overlap::AllowAll,
];

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        8 => prop_oneof![0..90_000_i64, 0..2_000_i64, 0..7_200_000_i64].prop_map(Act::Pass),
        4 => Just(Act::Ends),
        2 => Just(Act::Stopped),
        1 => Just(Act::Trigger),
        1 => Just(Act::Pause),
        2 => Just(Act::Resume),
        1 => (0..20_i64).prop_map(Act::Backfill),
        1 => prop::sample::select(OVERLAPS.to_vec()).prop_map(Act::Overlap),
    ];
    prop::collection::vec(act, 1..60)
}

prop_compose! {
    fn specs()(
        overlap in prop::sample::select(OVERLAPS.to_vec()),
        catchup in prop::sample::select(vec![CatchUp::None, CatchUp::Last, CatchUp::All]),
        catchup_window_millis in prop_oneof![Just(0), Just(300_000), Just(3_600_000), Just(u64::MAX)],
        jitter_millis in prop_oneof![Just(0), Just(45_000)],
        max_runs in prop_oneof![3 => Just(None), 1 => (1..20_u64).prop_map(Some)],
    ) -> Spec {
        Spec { overlap, catchup, catchup_window_millis, jitter_millis, max_runs, ..minutely() }
    }
}

/// A store in memory: the records, the live tasks, the schedule.
struct Life {
    spec: Spec,
    known: PlanInput,
    now: Timestamp,
    began: Timestamp,
    records: BTreeMap<Timestamp, Decision>,
    tasks: u128,
    fired: u64,
    /// Whether every overlap policy so far allowed only one live task at a time.
    strict: bool,
}

impl Life {
    fn write(&mut self, plan: Plan) {
        assert!(plan.decisions.len() <= 2 * PLAN_MAX);
        assert!(
            plan.next_run_at.is_none_or(|next| self.known.next_run_at.is_some_and(|known| next >= known)),
            "the next run only grows"
        );
        self.known.live.retain(|live| !plan.end.contains(&live.task));
        for live in &mut self.known.live {
            live.stop_requested |= plan.stop.contains(&live.task);
        }
        let mut here = BTreeSet::new();
        for decision in plan.decisions {
            assert!(here.insert(decision.instant), "an instant is decided once in a plan: {decision:?}");
            let before = self.records.insert(decision.instant, decision);
            assert_eq!(
                before.map(|before| before.outcome),
                decision.waited.then_some(OccurrenceOutcome::Buffered),
                "only a waiting occurrence is decided again: {decision:?}"
            );
            self.known.buffered.retain(|waiting| waiting.instant != decision.instant);
            match decision.outcome {
                OccurrenceOutcome::Buffered => {
                    self.known.buffered.push(WaitingOccurrence { instant: decision.instant, origin: decision.origin });
                }
                OccurrenceOutcome::Fired => {
                    assert!(decision.execute_at.is_some_and(|at| at >= decision.instant));
                    self.tasks += 1;
                    self.fired += 1;
                    self.known.live.push(live(self.tasks));
                    assert!(decision.instant <= self.now.plus_millis(1_000), "nothing fires before its time");
                }
                _ => {}
            }
        }
        self.known.buffered.sort_by_key(|waiting| (waiting.origin, waiting.instant));
        self.known.run_count += plan.fired;
        self.known.next_run_at = plan.next_run_at;
        assert_eq!(self.known.run_count, self.fired);
        assert!(!self.strict || self.known.live.len() <= 1, "two live tasks: {:?}", self.known.live);
    }

    fn plan_all(&mut self) {
        for _ in 0..20 {
            let plan = plan(id(), &self.spec, &self.known, self.now);
            let more = plan.more;
            self.write(plan);
            if !more {
                return;
            }
        }
        panic!("twenty plans were not enough");
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Pass(millis) => {
                self.now = self.now.plus_millis(*millis);
                self.plan_all();
            }
            Act::Ends => {
                if !self.known.live.is_empty() {
                    self.known.live.remove(0);
                }
            }
            Act::Stopped => self.known.live.retain(|live| !live.stop_requested),
            Act::Trigger => {
                // The store's clock moves on between two triggers.
                self.now = self.now.plus_millis(3);
                let plan = trigger(id(), &self.spec, &self.known, None, self.now);
                if plan.decisions.iter().all(|d| !self.records.contains_key(&d.instant)) {
                    self.write(plan);
                }
            }
            Act::Pause => self.spec.paused = true,
            Act::Resume => {
                if self.spec.paused {
                    self.spec.paused = false;
                    let plan = resume(id(), &self.spec, &self.known, self.now);
                    self.write(plan);
                    assert!(self.known.next_run_at.is_none_or(|next| next > self.now));
                }
            }
            Act::Backfill(minutes) => {
                let from = self.began.plus_millis(-minutes * 60_000);
                for instant in backfill(&self.spec, from, self.began.plus_millis(-1)).unwrap() {
                    let waiting = WaitingOccurrence { instant, origin: Origin::Backfill };
                    let decision = Decision {
                        instant,
                        origin: Origin::Backfill,
                        waited: false,
                        outcome: OccurrenceOutcome::Buffered,
                        execute_at: None,
                        reason: OccurrenceReason::Backfilled,
                        covers: None,
                    };
                    if self.records.contains_key(&instant) {
                        continue;
                    }
                    self.records.insert(instant, decision);
                    self.known.buffered.push(waiting);
                }
                self.known.buffered.sort_by_key(|waiting| (waiting.origin, waiting.instant));
            }
            Act::Overlap(overlap) => {
                self.spec.overlap = *overlap;
                self.strict &= *overlap != Overlap::AllowAll;
            }
        }
    }
}

proptest! {
    #[test]
    fn every_instant_is_decided_once_and_one_task_lives_at_a_time(spec in specs(), acts in acts()) {
        let began = at("10:00:00");
        let strict = spec.overlap != Overlap::AllowAll;
        let mut life = Life {
            known: PlanInput { next_run_at: first(&spec, 0, began), ..PlanInput::default() },
            spec,
            now: began,
            began,
            records: BTreeMap::new(),
            tasks: 0,
            fired: 0,
            strict,
        };
        for act in &acts {
            life.act(act);
        }
        // No instant up to the next run is without a record.
        if let Some(next) = life.known.next_run_at {
            for instant in life.spec.timing.iter_between(began.plus_millis(1), next.plus_millis(-1)) {
                let covered = life.records.range(..=instant).next_back().is_some_and(|(at, decision)| {
                    *at == instant || decision.covers.is_some_and(|covers| instant < covers.until)
                });
                prop_assert!(covered, "{} has no record", instant);
            }
        }
        // When every task finishes and nothing new is due, no occurrence is left waiting.
        life.spec.paused = false;
        life.known.next_run_at = None;
        while !life.known.buffered.is_empty() {
            life.known.live.clear();
            let before = life.known.buffered.len();
            life.plan_all();
            prop_assert!(life.known.buffered.len() < before, "{:?}", life.known);
        }
        if let Some(max) = life.spec.max_runs {
            let by_time = life.records.values().filter(|d| d.origin == Origin::Due && d.outcome == OccurrenceOutcome::Fired);
            prop_assert!(by_time.count() as u64 <= max);
        }
    }
}
