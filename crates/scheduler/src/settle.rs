//! Settles the runs that pull workers report on.
//!
//! The API calls it. The common case, a completion by the holder, is one conditional write and no
//! read. Only if that write finds nothing is the task read, so that the worker learns why.
//! Invariant: an outcome is written only while its token holds the task.

mod heartbeats;

use std::collections::HashSet;
use std::sync::Arc;

use punctual_core::clock::Clock;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::json::Json;
use punctual_core::run_end::{RunEnd, RunOutcome};
use punctual_core::state::{By, Change, Event, Position, State, transition};
use punctual_core::store::{Applied, Beat, Store, StoreError};
use punctual_core::task::{Hold, Task};
use punctual_core::time::Timestamp;
use punctual_core::trail::{Actor, FailedHow, Step};

use self::heartbeats::RecentHeartbeats;
use crate::breakers::{Circuits, EndedRun};

/// What the holder of a token reports about its run.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The task.
    pub id: TaskId,
    /// The fencing token the worker was given.
    pub token: u64,
    /// The report.
    pub report: RunReport,
}

/// A report about a run: it has ended, or it continues.
#[derive(Clone, Debug, PartialEq)]
pub enum RunReport {
    /// The run is over.
    Ended(RunOutcome),
    /// The run continues, and its lease is to be extended.
    Heartbeat {
        /// The progress of the run.
        progress: Option<Json>,
        /// What the next attempt can resume from.
        checkpoint: Option<Json>,
    },
}

/// What an accepted report did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettleEffect {
    /// How the run ended. None if it continues, or if this very outcome was recorded before.
    pub end: Option<RunEnd>,
    /// How long the run may go on, after a heartbeat.
    pub extended: Option<ExtendedLease>,
}

/// How long a run may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedLease {
    /// When the lease ends, unless another heartbeat comes before.
    pub lease_expires_at: Timestamp,
    /// When the run ends, whatever heartbeats come.
    pub timeout_at: Timestamp,
}

impl From<&Hold> for ExtendedLease {
    fn from(hold: &Hold) -> Self {
        Self { lease_expires_at: hold.expires_at, timeout_at: hold.deadline_at }
    }
}

impl SettleEffect {
    /// The outcome was recorded before; nothing has changed.
    pub const REPEATED: Self = Self { end: None, extended: None };

    /// The run is over.
    pub const fn ended(end: RunEnd) -> Self {
        Self { end: Some(end), extended: None }
    }

    /// The run continues.
    pub const fn extended(lease: ExtendedLease) -> Self {
        Self { end: None, extended: Some(lease) }
    }
}

/// Why a report had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleRefusal {
    /// The token does not hold the task any more.
    Stale {
        /// The state of the task.
        state: State,
    },
    /// The run did not end within the task's timeout, which no heartbeat extends.
    TimedOut {
        /// The state of the task.
        state: State,
    },
    /// The task was cancelled: the worker should stop.
    Cancelled,
    /// The tenant has no such task.
    NotFound,
}

/// The answer to one settlement.
pub type SettleResult = Result<SettleEffect, SettleRefusal>;

/// Settles the runs of pull workers (see the module).
#[derive(Clone)]
pub struct LeaseSettler {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    circuits: Arc<Circuits>,
    heartbeats: Arc<RecentHeartbeats>,
}

impl LeaseSettler {
    /// Settles in `store`.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, node: NodeId) -> Self {
        Self { store, clock, node, circuits: Arc::new(Circuits::off()), heartbeats: Arc::default() }
    }

    /// The same, and reports the ends of runs to the breakers.
    #[must_use]
    pub fn with_circuits(self, circuits: Arc<Circuits>) -> Self {
        Self { circuits, ..self }
    }

    /// Settles many at once, as if one after the other. Answers in order.
    pub async fn settle(&self, tenant: &str, items: Vec<Settlement>) -> Result<Vec<SettleResult>, StoreError> {
        let (ends, later) = until_ended(&items);
        if later.is_empty() {
            return self.settle_runs(tenant, &items).await;
        }
        // A report after the end of its run is handled once that end is written.
        let mut answers = vec![Err(SettleRefusal::NotFound); items.len()];
        for indexes in [ends, later] {
            let some: Vec<Settlement> = indexes.iter().map(|&at| items[at].clone()).collect();
            let settled = self.settle_runs(tenant, &some).await?;
            for (at, answer) in indexes.into_iter().zip(settled) {
                answers[at] = answer;
            }
        }
        Ok(answers)
    }

    /// Settles runs without reports after their end.
    async fn settle_runs(&self, tenant: &str, items: &[Settlement]) -> Result<Vec<SettleResult>, StoreError> {
        let mut answers: Vec<Option<SettleResult>> = vec![None; items.len()];
        self.answer_flood(tenant, items, &mut answers).await?;
        self.extend(tenant, items, &mut answers).await?;
        self.complete(tenant, items, &mut answers).await?;
        // The rest needs the task: a failure its retry policy, a refusal its reason.
        for _ in 0..TRIES_MAX {
            let open: Vec<usize> = (0..items.len()).filter(|&at| answers[at].is_none()).collect();
            if open.is_empty() {
                break;
            }
            self.read_and_settle(tenant, items, &open, &mut answers).await?;
        }
        let stale = SettleRefusal::Stale { state: State::Pending };
        let answers: Vec<SettleResult> = answers.into_iter().map(|answer| answer.unwrap_or(Err(stale))).collect();
        self.remember(tenant, items, &answers);
        Ok(answers)
    }

    /// Reports ends to the breakers, and forgets the heartbeats of leases that do not continue.
    fn remember(&self, tenant: &str, items: &[Settlement], answers: &[SettleResult]) {
        let answered = || items.iter().zip(answers);
        self.circuits.count(answered().filter_map(|(item, answer)| ended_run(tenant, item, answer)));
        let goes_on = |answer: &SettleResult| answer.is_ok_and(|settled| settled.extended.is_some());
        let over = answered().filter(|(_, answer)| !goes_on(answer));
        self.heartbeats.forget(over.map(|(item, _)| (item.id, item.token)));
    }

    /// Answers a flood of heartbeats from the tasks as they are read. A heartbeat whose lease does
    /// not hold any more stays open.
    async fn answer_flood(
        &self,
        tenant: &str,
        items: &[Settlement],
        answers: &mut [Option<SettleResult>],
    ) -> Result<(), StoreError> {
        let plain = RunReport::Heartbeat { progress: None, checkpoint: None };
        let is_flood = |item: &Settlement| item.report == plain && self.heartbeats.are_enough(item.id, item.token);
        let flood: Vec<usize> = (0..items.len()).filter(|&at| is_flood(&items[at])).collect();
        if flood.is_empty() {
            return Ok(());
        }
        let tasks = self.store.get(tenant, flood.iter().map(|&at| items[at].id).collect()).await?;
        let now = self.clock.now();
        for (at, task) in flood.into_iter().zip(tasks) {
            let lease = task.and_then(|task| current_lease(&task, items[at].token, now));
            answers[at] = lease.map(|lease| Ok(SettleEffect::extended(lease)));
        }
        Ok(())
    }

    /// Writes the heartbeats of tokens that hold their task.
    async fn extend(
        &self,
        tenant: &str,
        items: &[Settlement],
        answers: &mut [Option<SettleResult>],
    ) -> Result<(), StoreError> {
        let open = items.iter().enumerate().filter(|(at, _)| answers[*at].is_none());
        let beats = open.filter_map(|(at, item)| Some((at, heartbeat(tenant, item)?)));
        let (indexes, beats): (Vec<usize>, Vec<Beat>) = beats.unzip();
        if beats.is_empty() {
            return Ok(());
        }
        let holds = self.store.extend(beats).await?;
        for (at, hold) in indexes.into_iter().zip(holds) {
            if let Some(hold) = hold {
                self.heartbeats.written(items[at].id, items[at].token);
                answers[at] = Some(Ok(SettleEffect::extended((&hold).into())));
            }
        }
        Ok(())
    }

    /// Writes the completions of tokens that hold their task, without a read.
    async fn complete(
        &self,
        tenant: &str,
        items: &[Settlement],
        answers: &mut [Option<SettleResult>],
    ) -> Result<(), StoreError> {
        let by = self.by(Actor::Worker("".into()));
        let mut writes = Vec::new();
        for (at, item) in items.iter().enumerate() {
            if let RunReport::Ended(RunOutcome::Completed { result, .. }) = &item.report {
                let change = Change::complete_held(tenant, item.token, result.clone(), &by);
                writes.push(((at, RunEnd::Completed), (item.id, change)));
            }
        }
        self.apply(writes, answers).await
    }

    /// Reads the tasks of open items, answers those that need no change, and changes the others. An
    /// item whose change loses a race stays open for the next try.
    async fn read_and_settle(
        &self,
        tenant: &str,
        items: &[Settlement],
        open: &[usize],
        answers: &mut [Option<SettleResult>],
    ) -> Result<(), StoreError> {
        let tasks = self.store.get(tenant, open.iter().map(|&at| items[at].id).collect()).await?;
        let mut writes = Vec::new();
        for (&at, task) in open.iter().zip(tasks) {
            match self.decide(&items[at], task.as_ref()) {
                SettleDecision::Answer(answer) => answers[at] = Some(answer),
                SettleDecision::End(change, end) => writes.push(((at, end), (items[at].id, *change))),
                SettleDecision::Stop(change) => {
                    // The worker stops even if another write came first.
                    answers[at] = Some(Err(SettleRefusal::Cancelled));
                    self.store.apply(vec![(items[at].id, *change)]).await?;
                }
            }
        }
        self.apply(writes, answers).await
    }

    /// Applies the changes that end runs, and answers those that were applied.
    async fn apply(
        &self,
        writes: Vec<((usize, RunEnd), (TaskId, Change))>,
        answers: &mut [Option<SettleResult>],
    ) -> Result<(), StoreError> {
        if writes.is_empty() {
            return Ok(());
        }
        let (ends, changes): (Vec<_>, Vec<_>) = writes.into_iter().unzip();
        let applied = self.store.apply(changes).await?;
        debug_assert_eq!(applied.len(), ends.len(), "an answer for each change");
        for ((at, end), applied) in ends.into_iter().zip(applied) {
            if let Applied::Done(_) = applied {
                answers[at] = Some(Ok(SettleEffect::ended(end)));
            }
        }
        Ok(())
    }

    /// What to do about one item, given its task as it is now.
    fn decide(&self, item: &Settlement, task: Option<&Task>) -> SettleDecision {
        let Some(task) = task else { return SettleDecision::Answer(Err(SettleRefusal::NotFound)) };
        let position = task.position;
        let by = self.by(Actor::Worker(task.worker.as_deref().unwrap_or_default().into()));
        if let Some(stop) = stop_if_asked(&position, item.token, &by) {
            return SettleDecision::Stop(Box::new(stop));
        }
        if !position.is_held_by(item.token) {
            return SettleDecision::Answer(answer_from_trail(item, task));
        }
        match &item.report {
            RunReport::Ended(outcome) => {
                let is_under_breaker = || self.circuits.spares(&task.lane.key);
                let (change, end) = outcome
                    .clone()
                    .after_releases(task.trail.releases_in_a_row())
                    .end_run(&position, &task.body.retry_policy, is_under_breaker, rand::random(), &by)
                    .expect("invariant: every outcome of a pull worker ends its run");
                SettleDecision::End(Box::new(change), end)
            }
            // The token holds, and yet the store did not extend the lease: it has run out.
            RunReport::Heartbeat { .. } => {
                let state = position.state;
                let is_timed_out = task.hold.as_ref().is_some_and(|hold| hold.deadline_at <= by.now);
                let timed_out = SettleRefusal::TimedOut { state };
                SettleDecision::Answer(Err(if is_timed_out { timed_out } else { SettleRefusal::Stale { state } }))
            }
        }
    }

    fn by<'a>(&self, actor: Actor<'a>) -> By<'a> {
        By { now: self.clock.now(), node: self.node, actor }
    }
}

/// The change that stops a run that was asked to stop; none if it was not, or if `token` is stale.
pub fn stop_if_asked(position: &Position, token: u64, by: &By<'_>) -> Option<Change> {
    let is_asked = position.is_asked_to_stop(token);
    is_asked.then(|| transition(position, Event::Stopped, by).expect("invariant: a running task can stop"))
}

/// What to do about a settlement.
enum SettleDecision {
    /// Nothing is written.
    Answer(SettleResult),
    /// This ends the run.
    End(Box<Change>, RunEnd),
    /// The run was asked to stop, and has stopped.
    Stop(Box<Change>),
}

/// How often a settlement that loses races is tried. Each loss means that the task has changed, so
/// the token is stale. Two tries decide; the third is a reserve.
const TRIES_MAX: usize = 3;

/// The indexes of the reports up to the end of each run, and of those that come after it.
fn until_ended(items: &[Settlement]) -> (Vec<usize>, Vec<usize>) {
    let mut ended = HashSet::with_capacity(items.len());
    (0..items.len()).partition(|&at| {
        let Settlement { id, token, report } = &items[at];
        match report {
            RunReport::Heartbeat { .. } => !ended.contains(&(*id, *token)),
            RunReport::Ended(_) => ended.insert((*id, *token)),
        }
    })
}

fn heartbeat(tenant: &str, item: &Settlement) -> Option<Beat> {
    let RunReport::Heartbeat { progress, checkpoint } = &item.report else { return None };
    Some(Beat {
        tenant: tenant.to_owned(),
        id: item.id,
        token: item.token,
        progress: progress.clone(),
        checkpoint: checkpoint.clone(),
        detach: false,
    })
}

/// The lease of `token`, if it holds the task and has not run out.
fn current_lease(task: &Task, token: u64, now: Timestamp) -> Option<ExtendedLease> {
    let hold = task.hold.as_ref().filter(|_| task.position.is_held_by(token))?;
    Some(hold.into()).filter(|lease: &ExtendedLease| lease.lease_expires_at > now)
}

/// The run that a settlement has ended, for the tenant's breaker: the worker is the tenant's, even
/// if a webhook brought it the task.
fn ended_run<'a>(tenant: &'a str, item: &'a Settlement, answer: &SettleResult) -> Option<EndedRun<'a>> {
    let end = match answer {
        Ok(settled) => settled.end?,
        Err(SettleRefusal::Cancelled) => RunEnd::Cancelled,
        Err(_) => return None,
    };
    let RunReport::Ended(RunOutcome::Failed(failure)) = &item.report else {
        return Some(EndedRun { tenant, target: "", task: item.id, end, error: None });
    };
    let end = end.for_breakers(failure.health());
    let error = end.is_failure().then(|| failure.error.message.as_ref().into());
    Some(EndedRun { tenant, target: "", task: item.id, end, error })
}

/// The answer for a token that does not hold the task any more. A repeated report is accepted.
fn answer_from_trail(item: &Settlement, task: &Task) -> SettleResult {
    let stale = Err(SettleRefusal::Stale { state: task.state() });
    let held = task.trail.at_version(item.token).is_some_and(|entry| matches!(entry.step, Step::Started { .. }));
    let Some(next) = task.trail.at_version(item.token.saturating_add(1)).filter(|_| held) else { return stale };
    if let Step::Failed { outcome: FailedHow::TimedOut, .. }
    | Step::FailedUncounted { outcome: FailedHow::TimedOut, .. } = next.step
    {
        return Err(SettleRefusal::TimedOut { state: task.state() });
    }
    let RunReport::Ended(outcome) = &item.report else {
        return if next.step == Step::CancelRequested { Err(SettleRefusal::Cancelled) } else { stale };
    };
    match (&next.step, outcome) {
        (Step::Completed { .. }, RunOutcome::Completed { result, .. }) if task.result == *result => {
            Ok(SettleEffect::REPEATED)
        }
        // A final failure does not repeat a failure that was retried.
        (
            Step::Failed { outcome: FailedHow::Failed, error, .. }
            | Step::FailedUncounted { outcome: FailedHow::Failed, error, .. },
            RunOutcome::Failed(failure),
        ) if *error == failure.error && (failure.retryable || next.to == State::DeadLettered) => {
            Ok(SettleEffect::REPEATED)
        }
        (Step::GivenBack, RunOutcome::Released { .. }) => Ok(SettleEffect::REPEATED),
        (Step::CancelRequested, _) => Err(SettleRefusal::Cancelled),
        _ => stale,
    }
}
