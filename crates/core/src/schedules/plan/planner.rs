//! The planner: makes the decisions of [`super::plan`] and of the API's calls, one after the other.
//!
//! Invariant: every decision goes through [`Planner::push`], which checks it.

use std::collections::VecDeque;

use super::{
    BACKFILL_MAX, CatchUp, Covers, Decision, GRACE_MILLIS, LISTED_MAX, LiveTask, OccurrenceReason, Origin, Overlap,
    PLAN_MAX, Plan, PlanInput, Spec, TooMany, WaitingOccurrence,
};
use crate::cron::jitter_millis;
use crate::ids::ScheduleId;
use crate::schedules::OccurrenceOutcome;
use crate::time::Timestamp;

/// Decides the due instants of a schedule at `now`.
pub fn plan(id: ScheduleId, spec: &Spec, known: &PlanInput, now: Timestamp) -> Plan {
    let mut planner = Planner::new(id, spec, known, now);
    if spec.paused {
        planner.without_due(Planner::release_waiting);
        return planner.end();
    }
    // If later occurrences replace waiting ones, decide the later ones first.
    if matches!(spec.overlap, Overlap::CancelOther | Overlap::TerminateOther) {
        planner.decide_due();
        planner.release_waiting();
    } else {
        planner.release_waiting();
        planner.decide_due();
    }
    planner.release_backfilled();
    planner.end()
}

/// Decides about a run that a client triggers at `now`. It ignores the time, a pause and
/// `max_runs`, but follows the overlap policy. The instant of the occurrence is the first
/// millisecond from `now` on that is after the `newest` record and is no instant of the schedule.
pub fn trigger(id: ScheduleId, spec: &Spec, known: &PlanInput, newest: Option<Timestamp>, now: Timestamp) -> Plan {
    let is_taken = |at: &Timestamp| {
        let before = Timestamp::from_millis(at.as_millis().saturating_sub(1));
        known.next_run_at == Some(*at)
            || spec.timing.next_after(before) == Some(*at)
            || known.buffered.iter().any(|waiting| waiting.instant == *at)
    };
    // The waiting occurrences, the next run and instants a second apart cannot take all of these.
    let mut free =
        (0..).take(PLAN_MAX + 10).map(|millis| now.plus_millis(millis)).filter(|at| !is_taken(at)).peekable();
    let first = free.peek().copied();
    // A record far ahead comes from a clock that was set back; then the record's primary key
    // decides.
    let instant = free.find(|at| newest.is_none_or(|newest| *at > newest)).or(first).unwrap_or(now);
    let mut planner = Planner::new(id, spec, known, now);
    let admit = |planner: &mut Planner<'_>| {
        planner.admit(WaitingOccurrence { instant, origin: Origin::Manual }, OccurrenceReason::Triggered, false);
    };
    // With no live task only the pause makes due occurrences wait, and a manual run ignores the
    // pause.
    if spec.paused && !planner.busy {
        planner.without_due(admit);
    } else {
        admit(&mut planner);
    }
    planner.end()
}

/// Decides about a schedule that resumes: the instants that went by are skipped. `spec` is the
/// schedule as it will be, not paused.
pub fn resume(id: ScheduleId, spec: &Spec, known: &PlanInput, now: Timestamp) -> Plan {
    let mut planner = Planner::new(id, spec, known, now);
    while let Some(at) = planner.next.filter(|at| *at <= now) {
        if planner.room() == 1 {
            planner.record_many(at, now.plus_millis(1), OccurrenceOutcome::Skipped, OccurrenceReason::Paused);
        } else {
            planner.record(
                WaitingOccurrence { instant: at, origin: Origin::Due },
                false,
                OccurrenceOutcome::Skipped,
                OccurrenceReason::Paused,
            );
            planner.next = spec.timing.next_after(at);
        }
    }
    planner.end()
}

/// The instants of a past time, both ends included. The caller records each that has not fired as
/// buffered, with the origin `backfill`.
pub fn backfill(spec: &Spec, from: Timestamp, to: Timestamp) -> Result<Vec<Timestamp>, TooMany> {
    let mut instants: Vec<Timestamp> = spec.timing.iter_between(from, to).take(BACKFILL_MAX + 1).collect();
    if instants.len() > BACKFILL_MAX {
        instants.pop();
        return Err(TooMany { until: instants[BACKFILL_MAX - 1] });
    }
    Ok(instants)
}

/// Decides that none of the known waiting backfills runs.
pub fn withdraw(known: &PlanInput) -> Plan {
    let withdrawn = |waiting: &WaitingOccurrence| Decision {
        instant: waiting.instant,
        origin: waiting.origin,
        waited: true,
        outcome: OccurrenceOutcome::Skipped,
        execute_at: None,
        reason: OccurrenceReason::Withdrawn,
        covers: None,
    };
    let backfilled = known.buffered.iter().filter(|waiting| waiting.origin == Origin::Backfill);
    Plan { decisions: backfilled.map(withdrawn).collect(), next_run_at: known.next_run_at, ..Plan::default() }
}

/// The next run of a schedule that is new or whose instants were changed: the first after `after`.
pub fn first(spec: &Spec, run_count: u64, after: Timestamp) -> Option<Timestamp> {
    if spec.runs_left(run_count, 0) == 0 { None } else { spec.timing.next_after(after) }
}

/// What catch-up says about a due instant, before the overlap policy.
enum CatchUpVerdict {
    /// It may fire.
    Fires(OccurrenceReason),
    /// It does not, nor does any instant before the given one.
    Lost(OccurrenceOutcome, OccurrenceReason, Timestamp),
}

/// The planner's workspace.
struct Planner<'a> {
    id: ScheduleId,
    spec: &'a Spec,
    now: Timestamp,
    next: Option<Timestamp>,
    run_count: u64,
    live: &'a [LiveTask],
    /// Whether a task of the schedule will be live after this plan.
    busy: bool,
    /// The waiting occurrences that came due or were triggered, in order.
    waiting: VecDeque<WaitingOccurrence>,
    backfilled: VecDeque<WaitingOccurrence>,
    plan: Plan,
}

impl<'a> Planner<'a> {
    fn new(id: ScheduleId, spec: &'a Spec, known: &'a PlanInput, now: Timestamp) -> Self {
        let (backfilled, waiting) =
            known.buffered.iter().copied().partition(|waiting| waiting.origin == Origin::Backfill);
        Self {
            id,
            spec,
            now,
            next: known.next_run_at,
            run_count: known.run_count,
            live: &known.live,
            busy: !known.live.is_empty(),
            waiting,
            backfilled,
            plan: Plan::default(),
        }
    }

    fn end(mut self) -> Plan {
        let is_over = !self.spec.paused && self.runs_used_up();
        self.plan.next_run_at = self.next.filter(|_| !is_over);
        let unreleased = !self.waiting.is_empty() || !self.backfilled.is_empty();
        let unreleased = unreleased && (!self.busy || self.spec.overlap == Overlap::AllowAll);
        let due = self.plan.next_run_at.is_some_and(|at| at <= self.now);
        self.plan.more = !self.spec.paused && (due || unreleased);
        // Each superseded occurrence is one decision more (see the module's head).
        debug_assert!(self.plan.decisions.len() <= 2 * PLAN_MAX, "a plan is bounded");
        let fires = self.plan.decisions.iter().filter(|decision| decision.execute_at.is_some()).count();
        debug_assert_eq!(self.plan.fired, fires as u64, "the count of the decisions that fire");
        self.plan
    }

    /// How many more decisions fit into the plan.
    fn room(&self) -> usize {
        PLAN_MAX.saturating_sub(self.plan.decisions.len())
    }

    /// Whether every allowed run was made or is reserved for a waiting occurrence.
    fn runs_used_up(&self) -> bool {
        self.spec.runs_left(self.run_count, self.waiting.len() as u64) == 0
    }

    /// Runs `step` without the waiting occurrences that the pause holds back.
    fn without_due(&mut self, step: impl FnOnce(&mut Self)) {
        let by_hand = self.waiting.partition_point(|waiting| waiting.origin == Origin::Due);
        let triggered = self.waiting.split_off(by_hand);
        let mut due = std::mem::replace(&mut self.waiting, triggered);
        step(self);
        due.append(&mut self.waiting);
        self.waiting = due;
    }

    /// Fires waiting occurrences, as far as the policy allows.
    fn release_waiting(&mut self) {
        let replaces = matches!(self.spec.overlap, Overlap::CancelOther | Overlap::TerminateOther);
        if replaces {
            self.keep_the_last();
        }
        while self.room() > 0
            && let Some(head) = self.waiting.front().copied()
        {
            if head.origin == Origin::Due && self.spec.runs_left(self.run_count, 0) == 0 {
                self.record(head, true, OccurrenceOutcome::Skipped, OccurrenceReason::RunsUsedUp);
            } else if self.busy && self.spec.overlap == Overlap::TerminateOther {
                self.end_live();
                self.fire(head, true, OccurrenceReason::PreviousEnded);
            } else if self.busy && self.spec.overlap != Overlap::AllowAll {
                if replaces {
                    self.ask_to_stop();
                }
                return;
            } else {
                self.fire(
                    head,
                    true,
                    if self.busy { OccurrenceReason::OverlapAllowed } else { OccurrenceReason::PreviousEnded },
                );
            }
            self.waiting.pop_front();
        }
    }

    /// Keeps the last waiting occurrence. Several wait only if the policy has changed; each would
    /// replace the one before it.
    fn keep_the_last(&mut self) {
        let Some(last) = self.waiting.iter().copied().max_by_key(|waiting| waiting.instant) else { return };
        for waiting in std::mem::replace(&mut self.waiting, VecDeque::from([last])) {
            if waiting.instant != last.instant {
                self.record(waiting, true, OccurrenceOutcome::Skipped, OccurrenceReason::Superseded);
            }
        }
    }

    /// Fires backfilled occurrences, after everything that is due.
    fn release_backfilled(&mut self) {
        while self.room() > 0 && (!self.busy || self.spec.overlap == Overlap::AllowAll) {
            let Some(head) = self.backfilled.pop_front() else { return };
            self.fire(head, true, OccurrenceReason::Backfilled);
        }
    }

    /// Decides the instants whose time has come.
    fn decide_due(&mut self) {
        let late = self.next.filter(|at| *at < self.late_before());
        let last = late.filter(|_| self.spec.catchup == CatchUp::Last);
        let last = last.and_then(|from| self.spec.timing.last_between(from, self.now));
        while self.room() > 0
            && !self.runs_used_up()
            && let Some(at) = self.next.filter(|at| *at <= self.now)
        {
            let occurrence = WaitingOccurrence { instant: at, origin: Origin::Due };
            match self.catch_up(at, last) {
                CatchUpVerdict::Lost(outcome, reason, until) if self.room() == 1 && self.are_many(at, until) => {
                    self.record_many(at, until, outcome, reason);
                }
                CatchUpVerdict::Lost(outcome, reason, _) => {
                    self.record(occurrence, false, outcome, reason);
                    self.next = self.spec.timing.next_after(at);
                }
                CatchUpVerdict::Fires(reason) => {
                    self.next = self.spec.timing.next_after(at);
                    self.admit(occurrence, reason, self.next.is_some_and(|next| next <= self.now));
                }
            }
        }
    }

    fn late_before(&self) -> Timestamp {
        self.now.plus_millis(-GRACE_MILLIS)
    }

    fn catch_up(&self, at: Timestamp, last: Option<Timestamp>) -> CatchUpVerdict {
        let late_before = self.late_before();
        let window = i64::try_from(self.spec.catchup_window_millis).unwrap_or(i64::MAX);
        let window_begins = Timestamp::from_millis(self.now.as_millis().saturating_sub(window)).min(late_before);
        match self.spec.catchup {
            _ if at >= late_before => CatchUpVerdict::Fires(OccurrenceReason::OnTime),
            CatchUp::None => CatchUpVerdict::Lost(OccurrenceOutcome::Missed, OccurrenceReason::NoCatchUp, late_before),
            _ if at < window_begins => {
                CatchUpVerdict::Lost(OccurrenceOutcome::Missed, OccurrenceReason::OutsideWindow, window_begins)
            }
            CatchUp::Last => match last.filter(|last| at < *last) {
                Some(last) => CatchUpVerdict::Lost(OccurrenceOutcome::Coalesced, OccurrenceReason::LeftToLast, last),
                None => CatchUpVerdict::Fires(OccurrenceReason::CaughtUp),
            },
            CatchUp::All => CatchUpVerdict::Fires(OccurrenceReason::CaughtUp),
        }
    }

    /// Applies the overlap policy to an occurrence. `overtaken` says that a later one is due too.
    fn admit(&mut self, occurrence: WaitingOccurrence, reason: OccurrenceReason, overtaken: bool) {
        let idle = !self.busy && self.waiting.is_empty();
        match self.spec.overlap {
            Overlap::Skip if self.busy => {
                self.record(occurrence, false, OccurrenceOutcome::Skipped, OccurrenceReason::PreviousLive);
            }
            Overlap::Skip | Overlap::AllowAll => self.fire(occurrence, false, reason),
            Overlap::BufferOne | Overlap::BufferAll if idle => self.fire(occurrence, false, reason),
            Overlap::BufferOne if !self.waiting.is_empty() => {
                self.record(occurrence, false, OccurrenceOutcome::Skipped, OccurrenceReason::OneWaits);
            }
            Overlap::BufferAll if self.waiting.len() >= PLAN_MAX => {
                self.record(occurrence, false, OccurrenceOutcome::Skipped, OccurrenceReason::BufferFull);
            }
            Overlap::BufferOne | Overlap::BufferAll => self.hold(occurrence, OccurrenceReason::WaitsForPrevious),
            Overlap::CancelOther | Overlap::TerminateOther if overtaken => {
                self.record(occurrence, false, OccurrenceOutcome::Skipped, OccurrenceReason::Superseded);
            }
            Overlap::CancelOther | Overlap::TerminateOther => self.take_over(occurrence, reason),
        }
    }

    /// The occurrence replaces the live task and everything that waits.
    fn take_over(&mut self, occurrence: WaitingOccurrence, reason: OccurrenceReason) {
        while let Some(waiting) = self.waiting.pop_front() {
            self.record(waiting, true, OccurrenceOutcome::Skipped, OccurrenceReason::Superseded);
        }
        if self.spec.overlap == Overlap::TerminateOther {
            self.end_live();
            self.fire(occurrence, false, reason);
        } else if self.busy {
            self.ask_to_stop();
            self.hold(occurrence, OccurrenceReason::WaitsForStop);
        } else {
            self.fire(occurrence, false, reason);
        }
    }

    fn end_live(&mut self) {
        if self.plan.end.is_empty() {
            self.plan.end.extend(self.live.iter().map(|live| live.task));
        }
    }

    fn ask_to_stop(&mut self) {
        if self.plan.stop.is_empty() {
            self.plan.stop.extend(self.live.iter().filter(|live| !live.stop_requested).map(|live| live.task));
        }
    }

    fn fire(&mut self, occurrence: WaitingOccurrence, waited: bool, reason: OccurrenceReason) {
        let jitter = match occurrence.origin {
            Origin::Manual => 0,
            _ => jitter_millis(self.id, occurrence.instant, self.spec.jitter_millis),
        };
        let due_at = occurrence.instant.plus_unsigned_millis(jitter);
        let execute_at = if waited { due_at.max(self.now) } else { due_at };
        self.busy = true;
        // A backfill is no run of the schedule.
        self.run_count = self.run_count.saturating_add(u64::from(occurrence.origin != Origin::Backfill));
        let WaitingOccurrence { instant, origin } = occurrence;
        let outcome = OccurrenceOutcome::Fired;
        self.push(Decision { instant, origin, waited, outcome, execute_at: Some(execute_at), reason, covers: None });
    }

    fn hold(&mut self, occurrence: WaitingOccurrence, reason: OccurrenceReason) {
        self.waiting.push_back(occurrence);
        self.record(occurrence, false, OccurrenceOutcome::Buffered, reason);
    }

    fn record(
        &mut self,
        occurrence: WaitingOccurrence,
        waited: bool,
        outcome: OccurrenceOutcome,
        reason: OccurrenceReason,
    ) {
        let WaitingOccurrence { instant, origin } = occurrence;
        self.push(Decision { instant, origin, waited, outcome, execute_at: None, reason, covers: None });
    }

    /// Records all instants from `at` to before `until` as one, and continues after them.
    fn record_many(&mut self, at: Timestamp, until: Timestamp, outcome: OccurrenceOutcome, reason: OccurrenceReason) {
        let covers = Covers::of(until, self.count(at, until));
        let origin = Origin::Due;
        self.push(Decision { instant: at, origin, waited: false, outcome, execute_at: None, reason, covers });
        self.next = self.spec.timing.next_after(until.plus_millis(-1));
    }

    fn push(&mut self, decision: Decision) {
        // A fired decision without a time would make no task, and its record would say it did.
        debug_assert_eq!(decision.outcome == OccurrenceOutcome::Fired, decision.execute_at.is_some());
        // Waiting occurrences have a record of their own; one record cannot stand for many.
        debug_assert!(decision.covers.is_none() || !decision.waited, "an occurrence that waited covers no others");
        self.plan.fired += u64::from(decision.outcome == OccurrenceOutcome::Fired);
        self.plan.decisions.push(decision);
    }

    /// Whether the instants from `at` to before `until` are too many to list.
    fn are_many(&self, at: Timestamp, until: Timestamp) -> bool {
        self.count(at, until) > LISTED_MAX as u64
    }

    /// How many instants there are from `at`, which is one, to before `until`.
    fn count(&self, at: Timestamp, until: Timestamp) -> u64 {
        1 + self.spec.timing.count_between(at.plus_millis(1), until.plus_millis(-1))
    }
}
