//! Carries out the plan of a schedule: ends the tasks that are in the way, makes the tasks that
//! fire, and puts everything into one advance for the store.
//!
//! Called by the leader's cron loop, and by the API's `trigger`, `backfill`, `resume` and edits.
//! Invariant: a plan is written only by
//! [`Schedules::advance`](punctual_core::schedules::Schedules::advance), on the condition that its
//! revision is still the one that was read. A process that dies after it ended tasks and before
//! that write has done what the next check would do first.

use std::sync::Arc;

use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::schedules::plan::{self, Decision, LiveTask, Origin, Plan, PlanInput};
use punctual_core::schedules::{
    Advance, EVERY_PASS, FiredTask, OccurrenceOutcome, PauseSwitch, Progress, Record, Schedule, ScheduleSnapshot,
};
use punctual_core::state::{By, Change, Event, State, transition};
use punctual_core::store::{Applied, Store, StoreError};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;

use crate::{Firing, TaskFactory};

/// Carries out plans on behalf of this node (see the module).
#[derive(Clone)]
pub struct Occurrences {
    store: Arc<dyn Store>,
    factory: TaskFactory,
    node: NodeId,
}

/// What is to be done about a schedule.
pub enum Prepared {
    /// Write this advance. The flag says whether there is more to decide at once.
    Advance(Box<Advance>, bool),
    /// Nothing: it stays as it is.
    Nothing,
    /// A task that was in the way changed meanwhile: check again.
    Again,
    /// Another node leads by now.
    NotLeader,
}

/// The input of a plan.
pub fn plan_input(snapshot: &ScheduleSnapshot) -> PlanInput {
    let progress = &snapshot.schedule.progress;
    let live = snapshot.watched.iter().filter(|watched| watched.is_live());
    PlanInput {
        next_run_at: progress.next_run_at,
        run_count: progress.run_count,
        buffered: snapshot.buffered.clone(),
        live: live.map(|watched| LiveTask { task: watched.task, stop_requested: watched.stop_requested }).collect(),
    }
}

impl Occurrences {
    /// For this node; `factory` makes the tasks.
    pub fn new(store: Arc<dyn Store>, factory: TaskFactory, node: NodeId) -> Self {
        Self { store, factory, node }
    }

    /// Plans the due instants of a schedule at `now` and prepares the advance. The cron loop passes
    /// its `lease`; a request that is about to change the schedule passes none.
    pub async fn check(
        &self,
        lease: Option<&LeaderLease>,
        snapshot: &ScheduleSnapshot,
        now: Timestamp,
    ) -> Result<Prepared, StoreError> {
        if let Some(pause) = pause_after_failure(snapshot, now) {
            return Ok(Prepared::Advance(Box::new(pause), false));
        }
        let schedule = &snapshot.schedule;
        let plan = plan::plan(schedule.id, &schedule.definition.spec, &plan_input(snapshot), now);
        self.prepare(lease, snapshot, plan, now).await
    }

    /// Ends the tasks that are in the way, as the holder of `lease` if there is one, and makes the
    /// advance that writes `plan`.
    pub async fn prepare(
        &self,
        lease: Option<&LeaderLease>,
        snapshot: &ScheduleSnapshot,
        plan: Plan,
        now: Timestamp,
    ) -> Result<Prepared, StoreError> {
        if !(plan.stop.is_empty() && plan.end.is_empty()) {
            match self.end(lease, &snapshot.schedule, &plan, now).await? {
                Some(true) => {}
                Some(false) => return Ok(Prepared::Again),
                None => return Ok(Prepared::NotLeader),
            }
        }
        let advance = self.advance(snapshot, &plan, now);
        let progress = &snapshot.schedule.progress;
        let is_same = advance.records.is_empty()
            && advance.finished.is_empty()
            && (advance.next_run_at, advance.next_check_at) == (progress.next_run_at, progress.next_check_at);
        Ok(if is_same { Prepared::Nothing } else { Prepared::Advance(Box::new(advance), plan.more) })
    }

    /// The advance that writes `plan`, whose tasks to end are ended already.
    pub fn advance(&self, snapshot: &ScheduleSnapshot, plan: &Plan, now: Timestamp) -> Advance {
        let schedule = &snapshot.schedule;
        let records: Vec<Record> = plan.decisions.iter().map(|decision| self.record(snapshot, decision, now)).collect();
        let fires = records.iter().filter(|record| record.fired.is_some()).count() as u64;
        // A refused task is skipped, so it must be one of those that were to fire.
        debug_assert!(fires <= plan.fired, "only planned tasks fire");
        let ended = |task: &TaskId| plan.end.contains(task);
        let live = snapshot.watched.iter().filter(|watched| watched.is_live() && !ended(&watched.task)).count();
        let watches_failures = schedule.definition.pause_on_failure && (live > 0 || fires > 0);
        let waits = match schedule.pause {
            Some(_) => a_manual_run_waits(snapshot, &plan.decisions),
            None => watches_failures || an_occurrence_waits(snapshot, &plan.decisions),
        };
        let after =
            Schedule { progress: Progress { next_run_at: plan.next_run_at, ..schedule.progress }, ..schedule.clone() };
        let finished = snapshot.watched.iter().filter(|watched| !watched.is_live() || ended(&watched.task));
        Advance {
            records,
            finished: finished.map(|watched| watched.instant).collect(),
            next_run_at: plan.next_run_at,
            next_check_at: after.next_check_at(waits),
            ..Advance::nothing(schedule, now)
        }
    }

    fn record(&self, snapshot: &ScheduleSnapshot, decision: &Decision, now: Timestamp) -> Record {
        let mut record = Record {
            instant: decision.instant,
            origin: decision.origin,
            waited: decision.waited,
            outcome: decision.outcome,
            fired: None,
            reason: decision.reason.as_str().to_owned(),
            detail: None,
            covers: decision.covers,
        };
        if let Some(execute_at) = decision.execute_at {
            let firing = Firing { instant: decision.instant, execute_at, now };
            match self.fire(snapshot, firing) {
                Ok(fired) => record.fired = Some(fired),
                Err(fault) => {
                    record.outcome = OccurrenceOutcome::Skipped;
                    TASK_REFUSED.clone_into(&mut record.reason);
                    record.detail = Some(format!("Its task is not one that can be submitted any more: {fault}."));
                }
            }
        }
        record
    }

    fn fire(&self, snapshot: &ScheduleSnapshot, firing: Firing) -> Result<FiredTask, String> {
        let mut task = self.factory.of_occurrence(&snapshot.schedule, firing)?;
        if let Some(promise) = snapshot.promise(firing.instant) {
            task.id = promise.task;
            task.body.idempotency_key.clone_from(&promise.key);
        }
        Ok(FiredTask { task: Box::new(task), watched: snapshot.schedule.watches() })
    }

    /// Asks tasks to stop, and ends others at once. False if one of the latter changed meanwhile;
    /// none if another node leads.
    async fn end(
        &self,
        lease: Option<&LeaderLease>,
        schedule: &Schedule,
        plan: &Plan,
        now: Timestamp,
    ) -> Result<Option<bool>, StoreError> {
        let ids: Vec<TaskId> = plan.stop.iter().chain(&plan.end).copied().collect();
        let found = self.store.get(&schedule.tenant, ids.clone()).await?;
        let by = By { now, node: self.node, actor: Actor::Schedule };
        let mut changes: Vec<(TaskId, Change)> = Vec::new();
        for task in found.iter().flatten().filter(|task| !task.state().is_final()) {
            changes.extend(ending(task, plan.end.contains(&task.id), &by).into_iter().map(|change| (task.id, change)));
        }
        if changes.is_empty() {
            return Ok(Some(true));
        }
        let wanted: Vec<(TaskId, State)> = changes.iter().map(|(id, change)| (*id, change.to)).collect();
        let applied = match lease {
            Some(lease) => self.store.apply_as(lease, changes).await?,
            None => Some(self.store.apply(changes).await?),
        };
        let Some(applied) = applied else { return Ok(None) };
        debug_assert_eq!(applied.len(), wanted.len(), "the store answers each change");
        let is_lost = |applied: &Applied| matches!(applied, Applied::Lost);
        let lost = wanted.iter().zip(&applied).any(|((id, _), applied)| plan.end.contains(id) && is_lost(applied));
        Ok(Some(!lost))
    }
}

/// The reason of an occurrence whose task cannot be submitted.
pub const TASK_REFUSED: &str = "task_refused";

/// The changes that ask a task to stop or, with `at_once`, end it whatever its worker reports
/// later.
fn ending(task: &Task, at_once: bool, by: &By<'_>) -> Vec<Change> {
    let mut position = task.position;
    let mut steps = Vec::new();
    if !position.cancel_requested
        && let Ok(change) = transition(&position, Event::Cancel, by)
    {
        position = change.position_after(&position);
        steps.push(change);
    }
    if at_once
        && position.state == State::Running
        && let Ok(change) = transition(&position, Event::Stopped, by)
    {
        steps.push(change);
    }
    steps
}

/// The advance that pauses a schedule with `pause_on_failure`, if one of its tasks has failed.
fn pause_after_failure(snapshot: &ScheduleSnapshot, now: Timestamp) -> Option<Advance> {
    let schedule = &snapshot.schedule;
    if !schedule.definition.pause_on_failure || schedule.pause.is_some() {
        return None;
    }
    let failure = snapshot.watched.iter().find(|watched| watched.has_failed())?;
    let state = failure.state.map_or("removed", State::as_str);
    let reason = format!("{} ended {state}, and pause_on_failure is set", failure.task);
    let finished = snapshot.watched.iter().filter(|watched| !watched.is_live());
    Some(Advance {
        finished: finished.map(|watched| watched.instant).collect(),
        next_check_at: a_manual_run_waits(snapshot, &[]).then_some(EVERY_PASS),
        switch: Some(PauseSwitch::Pause(reason)),
        ..Advance::nothing(schedule, now)
    })
}

/// Whether a manual run waits after these decisions; a pause does not hold it back.
fn a_manual_run_waits(snapshot: &ScheduleSnapshot, decisions: &[Decision]) -> bool {
    let is_manual = |origin: Origin| origin == Origin::Manual;
    let before = snapshot.buffered.iter().filter(|waiting| is_manual(waiting.origin)).count();
    let of = |buffered: bool| {
        let decided = move |decision: &&Decision| {
            let waits = decision.outcome == OccurrenceOutcome::Buffered;
            is_manual(decision.origin) && waits == buffered && decision.waited != buffered
        };
        decisions.iter().filter(decided).count()
    };
    before + of(true) > of(false)
}

/// Whether an occurrence waits after these decisions.
fn an_occurrence_waits(snapshot: &ScheduleSnapshot, decisions: &[Decision]) -> bool {
    // The snapshot is full, so more may wait.
    if snapshot.buffered.len() >= plan::PLAN_MAX {
        return true;
    }
    let (mut waiting, mut gone) = (snapshot.buffered.len(), 0);
    for decision in decisions {
        if decision.outcome == OccurrenceOutcome::Buffered {
            waiting += usize::from(!decision.waited);
        } else {
            gone += usize::from(decision.waited);
        }
    }
    waiting > gone
}
