//! One turn of a schedule: the decisions of [`super::plan`] and of what the API asks for.

use std::collections::VecDeque;

use super::{
    BACKFILL, Buffered, CatchUp, Covers, Decision, GRACE_MILLIS, Known, LISTED, Live, Origin, Outcome, Overlap, Plan,
    Reason, Spec, TURN, TooMany,
};
use crate::ids::ScheduleId;
use crate::schedule::jitter_millis;
use crate::time::Timestamp;

/// What is to be done with a schedule now.
pub fn plan(id: ScheduleId, spec: &Spec, known: &Known, now: Timestamp) -> Plan {
    let mut turn = Turn::new(id, spec, known, now);
    if spec.paused {
        turn.without_due(Turn::release_waiting);
        return turn.end();
    }
    // Where a later one takes the place of one that waits, the later has to be seen first.
    if matches!(spec.overlap, Overlap::CancelOther | Overlap::TerminateOther) {
        turn.decide_due();
        turn.release_waiting();
    } else {
        turn.release_waiting();
        turn.decide_due();
    }
    turn.release_backfilled();
    turn.end()
}

/// What is to be done when somebody asks for a run now: the time does not matter, nor a pause, nor `max_runs`; the
/// overlap policy does. The occurrence is `now`, or the first millisecond after it, and after the `newest` one that is
/// recorded, that is no instant of the schedule.
pub fn trigger(id: ScheduleId, spec: &Spec, known: &Known, newest: Option<Timestamp>, now: Timestamp) -> Plan {
    let is_taken = |at: &Timestamp| {
        let before = Timestamp::from_millis(at.as_millis().saturating_sub(1));
        known.next_run_at == Some(*at)
            || spec.timing.next_after(before) == Some(*at)
            || known.buffered.iter().any(|waiting| waiting.instant == *at)
    };
    // What waits, the next run, and instants at least a second apart cannot take all of these.
    let mut free = (0..).take(TURN + 10).map(|millis| now.plus_millis(millis)).filter(|at| !is_taken(at)).peekable();
    let first = free.peek().copied();
    // A record far ahead is left by a clock that was set back; then the record's key has to tell.
    let instant = free.find(|at| newest.is_none_or(|newest| *at > newest)).or(first).unwrap_or(now);
    let mut turn = Turn::new(id, spec, known, now);
    let admit = |turn: &mut Turn<'_>| {
        turn.admit(Buffered { instant, origin: Origin::Manual }, Reason::Triggered, false);
    };
    // Where nothing is live only the pause keeps what is due waiting, and a run by hand does not look at that.
    if spec.paused && !turn.busy {
        turn.without_due(admit);
    } else {
        admit(&mut turn);
    }
    turn.end()
}

/// What is to be recorded when a schedule goes on after a pause, and when its next run is: what went by is skipped.
/// `spec` is the schedule as it will be, not paused.
pub fn resume(id: ScheduleId, spec: &Spec, known: &Known, now: Timestamp) -> Plan {
    let mut turn = Turn::new(id, spec, known, now);
    while let Some(at) = turn.next.filter(|at| *at <= now) {
        if turn.room() == 1 {
            turn.record_many(at, now.plus_millis(1), Outcome::Skipped, Reason::Paused);
        } else {
            turn.record(Buffered { instant: at, origin: Origin::Due }, false, Outcome::Skipped, Reason::Paused);
            turn.next = spec.timing.next_after(at);
        }
    }
    turn.end()
}

/// The instants of a time that is past, both ends included: each is to be recorded as buffered with the origin
/// `backfill`, if it was not fired before.
pub fn backfill(spec: &Spec, from: Timestamp, to: Timestamp) -> Result<Vec<Timestamp>, TooMany> {
    let mut instants: Vec<Timestamp> = spec.timing.iter_between(from, to).take(BACKFILL + 1).collect();
    if instants.len() > BACKFILL {
        instants.pop();
        return Err(TooMany { until: instants[BACKFILL - 1] });
    }
    Ok(instants)
}

/// What becomes of what backfills have put there, as far as it is known: none of it runs. It is counted nowhere, as it was none
/// of the runs.
pub fn withdraw(known: &Known) -> Plan {
    let withdrawn = |waiting: &Buffered| Decision {
        instant: waiting.instant,
        origin: waiting.origin,
        waited: true,
        outcome: Outcome::Skipped,
        reason: Reason::Withdrawn,
        covers: None,
    };
    let backfilled = known.buffered.iter().filter(|waiting| waiting.origin == Origin::Backfill);
    Plan { decisions: backfilled.map(withdrawn).collect(), next_run_at: known.next_run_at, ..Plan::default() }
}

/// The next run of a schedule that is new, or whose instants were changed: the first one after `after`.
pub fn first(spec: &Spec, run_count: u64, after: Timestamp) -> Option<Timestamp> {
    if spec.runs_left(run_count, 0) == 0 { None } else { spec.timing.next_after(after) }
}

/// What becomes of an instant whose time has come, before overlap is looked at.
enum Due {
    /// It may fire.
    Candidate(Reason),
    /// It does not, and neither do those after it until the given instant.
    Lost(Outcome, Reason, Timestamp),
}

struct Turn<'a> {
    id: ScheduleId,
    spec: &'a Spec,
    now: Timestamp,
    next: Option<Timestamp>,
    run_count: u64,
    live: &'a [Live],
    /// Whether a task of the schedule will be live after this turn.
    busy: bool,
    /// Those by their time and by hand, in order.
    waiting: VecDeque<Buffered>,
    backfilled: VecDeque<Buffered>,
    plan: Plan,
}

impl<'a> Turn<'a> {
    fn new(id: ScheduleId, spec: &'a Spec, known: &'a Known, now: Timestamp) -> Self {
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
        self.plan
    }

    /// How many more decisions fit into the turn.
    fn room(&self) -> usize {
        TURN.saturating_sub(self.plan.decisions.len())
    }

    /// Whether every run that there may be was made or is reserved for one that waits.
    fn runs_used_up(&self) -> bool {
        self.spec.runs_left(self.run_count, self.waiting.len() as u64) == 0
    }

    /// Does something as if nothing waited that a pause holds.
    fn without_due(&mut self, step: impl FnOnce(&mut Self)) {
        let by_hand = self.waiting.partition_point(|waiting| waiting.origin == Origin::Due);
        let triggered = self.waiting.split_off(by_hand);
        let mut due = std::mem::replace(&mut self.waiting, triggered);
        step(self);
        due.append(&mut self.waiting);
        self.waiting = due;
    }

    /// Lets go what waits, as far as the policy allows.
    fn release_waiting(&mut self) {
        let replaces = matches!(self.spec.overlap, Overlap::CancelOther | Overlap::TerminateOther);
        if replaces {
            self.keep_the_last();
        }
        while self.room() > 0
            && let Some(head) = self.waiting.front().copied()
        {
            if head.origin == Origin::Due && self.spec.runs_left(self.run_count, 0) == 0 {
                self.record(head, true, Outcome::Skipped, Reason::RunsUsedUp);
            } else if self.busy && self.spec.overlap == Overlap::TerminateOther {
                self.end_live();
                self.fire(head, true, Reason::PreviousEnded);
            } else if self.busy && self.spec.overlap != Overlap::AllowAll {
                if replaces {
                    self.ask_to_stop();
                }
                return;
            } else {
                self.fire(head, true, if self.busy { Reason::OverlapAllowed } else { Reason::PreviousEnded });
            }
            self.waiting.pop_front();
        }
    }

    /// Several wait only since the policy was another one: each would take the place of the one before it.
    fn keep_the_last(&mut self) {
        let Some(last) = self.waiting.iter().copied().max_by_key(|waiting| waiting.instant) else { return };
        for waiting in std::mem::replace(&mut self.waiting, VecDeque::from([last])) {
            if waiting.instant != last.instant {
                self.record(waiting, true, Outcome::Skipped, Reason::Superseded);
            }
        }
    }

    /// Lets go what a backfill put there, after everything that is due.
    fn release_backfilled(&mut self) {
        while self.room() > 0 && (!self.busy || self.spec.overlap == Overlap::AllowAll) {
            let Some(head) = self.backfilled.pop_front() else { return };
            self.fire(head, true, Reason::Backfilled);
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
            let occurrence = Buffered { instant: at, origin: Origin::Due };
            match self.judge(at, last) {
                Due::Lost(outcome, reason, until) if self.room() == 1 && self.are_many(at, until) => {
                    self.record_many(at, until, outcome, reason);
                }
                Due::Lost(outcome, reason, _) => {
                    self.record(occurrence, false, outcome, reason);
                    self.next = self.spec.timing.next_after(at);
                }
                Due::Candidate(reason) => {
                    self.next = self.spec.timing.next_after(at);
                    self.admit(occurrence, reason, self.next.is_some_and(|next| next <= self.now));
                }
            }
        }
    }

    fn late_before(&self) -> Timestamp {
        self.now.plus_millis(-GRACE_MILLIS)
    }

    fn judge(&self, at: Timestamp, last: Option<Timestamp>) -> Due {
        let late_before = self.late_before();
        let window = i64::try_from(self.spec.catchup_window_millis).unwrap_or(i64::MAX);
        let window_begins = Timestamp::from_millis(self.now.as_millis().saturating_sub(window)).min(late_before);
        match self.spec.catchup {
            _ if at >= late_before => Due::Candidate(Reason::OnTime),
            CatchUp::None => Due::Lost(Outcome::Missed, Reason::NoCatchUp, late_before),
            _ if at < window_begins => Due::Lost(Outcome::Missed, Reason::OutsideWindow, window_begins),
            CatchUp::Last => match last.filter(|last| at < *last) {
                Some(last) => Due::Lost(Outcome::Coalesced, Reason::LeftToLast, last),
                None => Due::Candidate(Reason::CaughtUp),
            },
            CatchUp::All => Due::Candidate(Reason::CaughtUp),
        }
    }

    /// Puts an occurrence that may fire under the overlap policy. `overtaken`: another one is due after it.
    fn admit(&mut self, occurrence: Buffered, reason: Reason, overtaken: bool) {
        let idle = !self.busy && self.waiting.is_empty();
        match self.spec.overlap {
            Overlap::Skip if self.busy => self.record(occurrence, false, Outcome::Skipped, Reason::PreviousLive),
            Overlap::Skip | Overlap::AllowAll => self.fire(occurrence, false, reason),
            Overlap::BufferOne | Overlap::BufferAll if idle => self.fire(occurrence, false, reason),
            Overlap::BufferOne if !self.waiting.is_empty() => {
                self.record(occurrence, false, Outcome::Skipped, Reason::OneWaits);
            }
            Overlap::BufferAll if self.waiting.len() >= TURN => {
                self.record(occurrence, false, Outcome::Skipped, Reason::BufferFull);
            }
            Overlap::BufferOne | Overlap::BufferAll => self.hold(occurrence, Reason::WaitsForPrevious),
            Overlap::CancelOther | Overlap::TerminateOther if overtaken => {
                self.record(occurrence, false, Outcome::Skipped, Reason::Superseded);
            }
            Overlap::CancelOther | Overlap::TerminateOther => self.take_over(occurrence, reason),
        }
    }

    /// The occurrence takes the place of the live task and of what waits.
    fn take_over(&mut self, occurrence: Buffered, reason: Reason) {
        while let Some(waiting) = self.waiting.pop_front() {
            self.record(waiting, true, Outcome::Skipped, Reason::Superseded);
        }
        if self.spec.overlap == Overlap::TerminateOther {
            self.end_live();
            self.fire(occurrence, false, reason);
        } else if self.busy {
            self.ask_to_stop();
            self.hold(occurrence, Reason::WaitsForStop);
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
            self.plan.stop.extend(self.live.iter().filter(|live| !live.stop_asked).map(|live| live.task));
        }
    }

    fn fire(&mut self, occurrence: Buffered, waited: bool, reason: Reason) {
        let jitter = match occurrence.origin {
            Origin::Manual => 0,
            _ => jitter_millis(self.id, occurrence.instant, self.spec.jitter_millis),
        };
        let due_at = occurrence.instant.plus_millis(i64::try_from(jitter).unwrap_or(i64::MAX));
        let execute_at = if waited { due_at.max(self.now) } else { due_at };
        self.busy = true;
        // A backfill is what somebody wants beside the runs that the schedule has.
        self.run_count = self.run_count.saturating_add(u64::from(occurrence.origin != Origin::Backfill));
        self.record(occurrence, waited, Outcome::Fired { execute_at }, reason);
    }

    fn hold(&mut self, occurrence: Buffered, reason: Reason) {
        self.waiting.push_back(occurrence);
        self.record(occurrence, false, Outcome::Buffered, reason);
    }

    fn record(&mut self, occurrence: Buffered, waited: bool, outcome: Outcome, reason: Reason) {
        let Buffered { instant, origin } = occurrence;
        self.push(Decision { instant, origin, waited, outcome, reason, covers: None });
    }

    /// Records all instants from `at` to before `until` as one, and goes on after them.
    fn record_many(&mut self, at: Timestamp, until: Timestamp, outcome: Outcome, reason: Reason) {
        let at_least = self.count(at, until);
        let covers = (at_least > 1).then_some(Covers { until, at_least });
        self.push(Decision { instant: at, origin: Origin::Due, waited: false, outcome, reason, covers });
        self.next = self.spec.timing.next_after(until.plus_millis(-1));
    }

    fn push(&mut self, decision: Decision) {
        let count = decision.covers.map_or(1, |covers| covers.at_least);
        match decision.outcome {
            Outcome::Fired { .. } => self.plan.fired += count,
            Outcome::Buffered => {}
            Outcome::Skipped => self.plan.skipped += count,
            Outcome::Missed | Outcome::Coalesced => self.plan.missed += count,
        }
        self.plan.decisions.push(decision);
    }

    /// Whether the instants from `at` to before `until` are too many to be listed.
    fn are_many(&self, at: Timestamp, until: Timestamp) -> bool {
        self.count(at, until) > LISTED as u64
    }

    /// How many instants there are from `at`, which is one, to before `until`; not counted further than need be.
    fn count(&self, at: Timestamp, until: Timestamp) -> u64 {
        let rest = self.spec.timing.iter_between(at.plus_millis(1), until.plus_millis(-1)).take(LISTED).count();
        1 + rest as u64
    }
}
