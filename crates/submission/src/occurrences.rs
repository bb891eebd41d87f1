//! Carries out what a plan says of a schedule: ends the tasks that are in the way, makes those that fire, and puts
//! everything into one turn for the store.
//!
//! The leader's cron loop and the API's `trigger`, `backfill`, `resume` and edits go through here. Nothing is written of a
//! schedule but by [`punctual_core::schedules::Schedules::turn`], on the condition that it is as it was read. Whoever
//! dies after tasks were ended and before the turn is written has done what the next look would do first.

use std::sync::Arc;

use punctual_core::coordinator::Lease;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::schedule::plan::{self, Decision, Known, Live, Origin, Plan};
use punctual_core::schedules::{AT_EVERY_LOOK, Progress, Record, Recorded, Schedule, Standing, Switch, Turn};
use punctual_core::state::{By, Change, Event, Position, State, transition};
use punctual_core::store::{Applied, Store, StoreError};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;

use crate::{Firing, TaskFactory};

/// See the module.
#[derive(Clone)]
pub struct Occurrences {
    store: Arc<dyn Store>,
    factory: TaskFactory,
    node: NodeId,
}

/// What is to be done about a schedule.
pub enum Prepared {
    /// This is to be written; the flag tells whether there is more to decide at once.
    Turn(Box<Turn>, bool),
    /// Nothing: it stays as it is.
    Nothing,
    /// A task that was in the way changed meanwhile: look again.
    Again,
    /// Somebody else leads by now.
    NotLeader,
}

/// What a plan may know of a schedule.
pub fn known(standing: &Standing) -> Known {
    let progress = &standing.schedule.progress;
    let live = standing.watched.iter().filter(|watched| watched.is_live());
    Known {
        next_run_at: progress.next_run_at,
        run_count: progress.run_count,
        buffered: standing.buffered.clone(),
        live: live.map(|watched| Live { task: watched.task, stop_asked: watched.stop_asked }).collect(),
    }
}

impl Occurrences {
    /// For this node; `factory` makes the tasks.
    pub fn new(store: Arc<dyn Store>, factory: TaskFactory, node: NodeId) -> Self {
        Self { store, factory, node }
    }

    /// What a look at `now` makes of a schedule: of the cron loop, as the holder of its `lease`, or of somebody who is about
    /// to change it.
    pub async fn look(
        &self,
        lease: Option<&Lease>,
        standing: &Standing,
        now: Timestamp,
    ) -> Result<Prepared, StoreError> {
        if let Some(turn) = failed(standing, now) {
            return Ok(Prepared::Turn(Box::new(turn), false));
        }
        let schedule = &standing.schedule;
        let plan = plan::plan(schedule.id, &schedule.definition.spec, &known(standing), now);
        self.prepare(lease, standing, plan, now).await
    }

    /// Ends what is in the way, as the holder of `lease` if there is one, and makes the turn that writes `plan`.
    pub async fn prepare(
        &self,
        lease: Option<&Lease>,
        standing: &Standing,
        plan: Plan,
        now: Timestamp,
    ) -> Result<Prepared, StoreError> {
        if !(plan.stop.is_empty() && plan.end.is_empty()) {
            match self.end(lease, &standing.schedule, &plan, now).await? {
                Some(true) => {}
                Some(false) => return Ok(Prepared::Again),
                None => return Ok(Prepared::NotLeader),
            }
        }
        let turn = self.turn(standing, &plan, now);
        let progress = &standing.schedule.progress;
        let is_same = turn.records.is_empty()
            && turn.rested.is_empty()
            && (turn.next_run_at, turn.look_at) == (progress.next_run_at, progress.look_at);
        Ok(if is_same { Prepared::Nothing } else { Prepared::Turn(Box::new(turn), plan.more) })
    }

    /// The turn that writes `plan`, whose tasks to end are ended.
    pub fn turn(&self, standing: &Standing, plan: &Plan, now: Timestamp) -> Turn {
        let schedule = &standing.schedule;
        let records: Vec<Record> = plan.decisions.iter().map(|decision| self.record(standing, decision, now)).collect();
        let fires = records.iter().filter(|record| record.outcome.task().is_some()).count() as u64;
        let refused = plan.fired.saturating_sub(fires);
        let ended = |task: &TaskId| plan.end.contains(task);
        let live = standing.watched.iter().filter(|watched| watched.is_live() && !ended(&watched.task)).count();
        let watches_failures = schedule.definition.pause_on_failure && (live > 0 || fires > 0);
        let waits = match schedule.pause {
            Some(_) => waits_by_hand(standing, &plan.decisions),
            None => watches_failures || still_waits(standing, &plan.decisions),
        };
        let after =
            Schedule { progress: Progress { next_run_at: plan.next_run_at, ..schedule.progress }, ..schedule.clone() };
        let rested = standing.watched.iter().filter(|watched| !watched.is_live() || ended(&watched.task));
        Turn {
            id: schedule.id,
            revision: schedule.revision,
            now,
            records,
            rested: rested.map(|watched| watched.instant).collect(),
            next_run_at: plan.next_run_at,
            look_at: after.look_at(waits),
            skipped: plan.skipped + refused,
            missed: plan.missed,
            switch: None,
            asked: None,
            edited: None,
        }
    }

    fn record(&self, standing: &Standing, decision: &Decision, now: Timestamp) -> Record {
        let schedule = &standing.schedule;
        let mut record = Record {
            instant: decision.instant,
            origin: decision.origin,
            waited: decision.waited,
            outcome: Recorded::Skipped,
            reason: decision.reason.as_str().to_owned(),
            detail: None,
            covers: decision.covers,
        };
        record.outcome = match decision.outcome {
            plan::Outcome::Buffered => Recorded::Buffered,
            plan::Outcome::Skipped => Recorded::Skipped,
            plan::Outcome::Missed => Recorded::Missed,
            plan::Outcome::Coalesced => Recorded::Coalesced,
            plan::Outcome::Fired { execute_at } => {
                match self.factory.of_occurrence(schedule, Firing { instant: decision.instant, execute_at, now }) {
                    Ok(mut task) => {
                        if let Some(promise) = standing.promise(decision.instant) {
                            task.id = promise.task;
                            task.body.idempotency_key.clone_from(&promise.key);
                        }
                        Recorded::Fired { task: Box::new(task), watched: schedule.watches() }
                    }
                    Err(fault) => {
                        TASK_REFUSED.clone_into(&mut record.reason);
                        record.detail = Some(format!("Its task is not one that can be submitted any more: {fault}."));
                        Recorded::Skipped
                    }
                }
            }
        };
        record
    }

    /// Asks tasks to stop, and ends others at once. False: one of the latter has changed since; none: somebody else leads.
    async fn end(
        &self,
        lease: Option<&Lease>,
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
        let is_lost = |applied: &Applied| matches!(applied, Applied::Lost);
        let lost = wanted.iter().zip(&applied).any(|((id, _), applied)| plan.end.contains(id) && is_lost(applied));
        Ok(Some(!lost))
    }
}

/// The reason of an occurrence whose task cannot be submitted.
pub const TASK_REFUSED: &str = "task_refused";

/// The steps that ask a task to stop, or end it whatever its worker says later.
fn ending(task: &Task, at_once: bool, by: &By<'_>) -> Vec<Change> {
    let mut position = task.position;
    let mut steps = Vec::new();
    if !position.cancel_requested
        && let Ok(change) = transition(&position, Event::Cancel, by)
    {
        position = Position {
            state: change.to,
            version: change.version,
            cancel_requested: change.cancel_requested,
            ..position
        };
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

/// What a failure makes of a schedule that is paused by one.
fn failed(standing: &Standing, now: Timestamp) -> Option<Turn> {
    let schedule = &standing.schedule;
    if !schedule.definition.pause_on_failure || schedule.pause.is_some() {
        return None;
    }
    let failure = standing.watched.iter().find(|watched| watched.has_failed())?;
    let state = failure.state.map_or("gone", State::as_str);
    let reason = format!("{} ended {state}, and pause_on_failure is set", failure.task);
    let rested = standing.watched.iter().filter(|watched| !watched.is_live());
    Some(Turn {
        id: schedule.id,
        revision: schedule.revision,
        now,
        records: Vec::new(),
        rested: rested.map(|watched| watched.instant).collect(),
        next_run_at: schedule.progress.next_run_at,
        look_at: waits_by_hand(standing, &[]).then_some(AT_EVERY_LOOK),
        skipped: 0,
        missed: 0,
        switch: Some(Switch::Pause(reason)),
        asked: None,
        edited: None,
    })
}

/// Whether anything waits after these decisions that somebody asked for by hand, which a pause does not hold.
fn waits_by_hand(standing: &Standing, decisions: &[Decision]) -> bool {
    let by_hand = |origin: Origin| origin == Origin::Manual;
    let before = standing.buffered.iter().filter(|waiting| by_hand(waiting.origin)).count();
    let of = |buffered: bool| {
        let decided = move |decision: &&Decision| {
            let waits = decision.outcome == plan::Outcome::Buffered;
            by_hand(decision.origin) && waits == buffered && decision.waited != buffered
        };
        decisions.iter().filter(decided).count()
    };
    before + of(true) > of(false)
}

/// Whether anything waits after these decisions.
fn still_waits(standing: &Standing, decisions: &[Decision]) -> bool {
    // As many as are read: there may be more.
    if standing.buffered.len() >= plan::TURN {
        return true;
    }
    let (mut waiting, mut gone) = (standing.buffered.len(), 0);
    for decision in decisions {
        if decision.outcome == plan::Outcome::Buffered {
            waiting += usize::from(!decision.waited);
        } else {
            gone += usize::from(decision.waited);
        }
    }
    waiting > gone
}
