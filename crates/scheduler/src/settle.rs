//! Settles what pull workers say of the tasks they hold.
//!
//! The common case, a completion by the rightful holder, is one conditional write and no
//! read. Only when that write finds nothing is the task read, to tell the worker why.

use std::collections::HashSet;
use std::sync::Arc;

use punctual_core::clock::Clock;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::json::Json;
use punctual_core::state::{By, Change, Event, Failure, State, transition};
use punctual_core::store::{Applied, Beat, Store, StoreError};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::trail::{Actor, FailedHow, RunError, Step};

use crate::breakers::{Circuits, EndedRun, RunEnd};

/// What the holder of a token says.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The task.
    pub id: TaskId,
    /// The fencing token it was given.
    pub token: u64,
    /// What it has to say.
    pub outcome: Outcome,
}

/// What became of a run, or how it is getting on.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It succeeded.
    Completed {
        /// What it returned.
        result: Option<Json>,
    },
    /// It failed.
    Failed {
        /// What went wrong.
        error: RunError<'static>,
        /// Whether another attempt could succeed.
        retryable: bool,
        /// The delay the worker asks for.
        retry_after_millis: Option<u64>,
    },
    /// The worker gives the task back; the attempt is not counted.
    Released,
    /// It goes on.
    Heartbeat {
        /// How far it is.
        progress: Option<Json>,
        /// What the next attempt can resume from.
        checkpoint: Option<Json>,
    },
}

/// The answer to a settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// Accepted: the run is over, and the task went to this state.
    Done {
        /// `COMPLETED`, `PENDING` or `DEAD_LETTERED`.
        to: State,
    },
    /// This very outcome was accepted before; nothing has changed.
    Repeated,
    /// The heartbeat was accepted.
    Extended {
        /// The end of the lease now.
        lease_expires_at: Timestamp,
    },
    /// Somebody else holds the task now, or it came to rest otherwise: no effect.
    Stale {
        /// The state of the task.
        state: State,
    },
    /// The task was cancelled: the worker should stop.
    Cancelled,
    /// There is no such task.
    NotFound,
}

/// Settles for the pull workers (see the module).
#[derive(Clone)]
pub struct Settler {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    node: NodeId,
    circuits: Arc<Circuits>,
}

impl Settler {
    /// Settles in `store`.
    pub fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, node: NodeId) -> Self {
        Self { store, clock, node, circuits: Arc::new(Circuits::off()) }
    }

    /// The same, and tells breakers how the runs ended.
    #[must_use]
    pub fn with_circuits(self, circuits: Arc<Circuits>) -> Self {
        Self { circuits, ..self }
    }

    /// Settles many at once, as if one after the other. Answers in order.
    pub async fn settle(&self, tenant: &str, items: Vec<Settlement>) -> Result<Vec<Settled>, StoreError> {
        let (ends, later) = until_ended(&items);
        if later.is_empty() {
            return self.settle_runs(tenant, items).await;
        }
        // What is said of a run after its end is looked at when that is written.
        let mut answers = vec![Settled::NotFound; items.len()];
        for places in [ends, later] {
            let settled = self.settle_runs(tenant, places.iter().map(|&at| items[at].clone()).collect()).await?;
            for (at, answer) in places.into_iter().zip(settled) {
                answers[at] = answer;
            }
        }
        Ok(answers)
    }

    /// Settles runs of which nothing is said after their end.
    async fn settle_runs(&self, tenant: &str, items: Vec<Settlement>) -> Result<Vec<Settled>, StoreError> {
        let mut answers: Vec<Option<Settled>> = vec![None; items.len()];
        self.beat(tenant, &items, &mut answers).await?;
        self.complete(tenant, &items, &mut answers).await?;
        // What is left needs a look at the task: failures want its retry policy, the rest a reason.
        for _ in 0..ROUNDS {
            let open: Vec<usize> = (0..items.len()).filter(|&at| answers[at].is_none()).collect();
            if open.is_empty() {
                break;
            }
            self.look_and_settle(tenant, &items, &open, &mut answers).await?;
        }
        self.circuits
            .count(items.iter().zip(&answers).filter_map(|(item, answer)| ended(tenant, item, answer.as_ref())));
        let lost = Settled::Stale { state: State::Pending };
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(|| lost.clone())).collect())
    }

    /// Heartbeats of rightful holders.
    async fn beat(
        &self,
        tenant: &str,
        items: &[Settlement],
        answers: &mut [Option<Settled>],
    ) -> Result<(), StoreError> {
        let (places, beats): (Vec<usize>, Vec<Beat>) = items
            .iter()
            .enumerate()
            .filter_map(|(at, item)| match &item.outcome {
                Outcome::Heartbeat { progress, checkpoint } => Some((
                    at,
                    Beat {
                        tenant: tenant.to_owned(),
                        id: item.id,
                        token: item.token,
                        progress: progress.clone(),
                        checkpoint: checkpoint.clone(),
                        detach: false,
                    },
                )),
                _ => None,
            })
            .unzip();
        if beats.is_empty() {
            return Ok(());
        }
        let held = self.store.extend(beats).await?;
        for (at, hold) in places.into_iter().zip(held) {
            answers[at] = hold.map(|hold| Settled::Extended { lease_expires_at: hold.expires_at });
        }
        Ok(())
    }

    /// Completions of rightful holders, without reading the tasks first.
    async fn complete(
        &self,
        tenant: &str,
        items: &[Settlement],
        answers: &mut [Option<Settled>],
    ) -> Result<(), StoreError> {
        let by = self.by(Actor::Worker("".into()));
        let mut places = Vec::new();
        let mut changes = Vec::new();
        for (at, item) in items.iter().enumerate() {
            if let Outcome::Completed { result } = &item.outcome {
                places.push(at);
                changes.push((item.id, Change::complete_held(tenant, item.token, result.clone(), &by)));
            }
        }
        self.apply(places, changes, answers).await
    }

    /// Reads the open items' tasks, answers what needs no change, and changes the rest. A race lost on the way
    /// leaves an item open for the next round.
    async fn look_and_settle(
        &self,
        tenant: &str,
        items: &[Settlement],
        open: &[usize],
        answers: &mut [Option<Settled>],
    ) -> Result<(), StoreError> {
        let tasks = self.store.get(tenant, open.iter().map(|&at| items[at].id).collect()).await?;
        let mut places = Vec::new();
        let mut changes = Vec::new();
        for (&at, task) in open.iter().zip(tasks) {
            match self.judge(&items[at], task.as_ref()) {
                Verdict::Answer(answer) => answers[at] = Some(answer),
                Verdict::Apply(change) => {
                    places.push(at);
                    changes.push((items[at].id, *change));
                }
                Verdict::Stop(change) => {
                    // The worker has heard of the cancellation; whether this write wins or another's does not
                    // change its answer.
                    answers[at] = Some(Settled::Cancelled);
                    self.store.apply(vec![(items[at].id, *change)]).await?;
                }
            }
        }
        self.apply(places, changes, answers).await
    }

    async fn apply(
        &self,
        places: Vec<usize>,
        changes: Vec<(TaskId, Change)>,
        answers: &mut [Option<Settled>],
    ) -> Result<(), StoreError> {
        if changes.is_empty() {
            return Ok(());
        }
        let goals: Vec<State> = changes.iter().map(|(_, change)| change.to).collect();
        let applied = self.store.apply(changes).await?;
        for ((at, to), applied) in places.into_iter().zip(goals).zip(applied) {
            if let Applied::Done(_) = applied {
                answers[at] = Some(Settled::Done { to });
            }
        }
        Ok(())
    }

    /// What to do about one item, given its task as it is now.
    fn judge(&self, item: &Settlement, task: Option<&Task>) -> Verdict {
        let Some(task) = task else { return Verdict::Answer(Settled::NotFound) };
        let position = task.position;
        let worker = Actor::Worker(task.worker.as_deref().unwrap_or_default().into());
        let by = self.by(worker);
        if position.is_asked_to_stop(item.token) {
            let stopped = transition(&position, Event::Stopped, &by).expect("invariant: a running task can stop");
            return Verdict::Stop(Box::new(stopped));
        }
        if position.is_held_by(item.token) {
            let event = match &item.outcome {
                Outcome::Completed { result } => Event::Complete { result: result.clone(), http_status: None },
                Outcome::Failed { error, retryable, retry_after_millis } => Event::Fail(Failure {
                    how: FailedHow::Failed,
                    error: error.clone(),
                    http_status: None,
                    retryable: *retryable,
                    retry_after_millis: *retry_after_millis,
                    policy: task.body.retry_policy,
                    poison_after: 0,
                    is_under_breaker: self.circuits.is_open_over(&task.lane.key),
                    dice: rand::random(),
                }),
                Outcome::Released => Event::GiveBack(by.now),
                // Its token is good and yet the store did not extend it: the lease has run out.
                Outcome::Heartbeat { .. } => return Verdict::Answer(Settled::Stale { state: position.state }),
            };
            let change = transition(&position, event, &by).expect("invariant: a running task takes every outcome");
            return Verdict::Apply(Box::new(change));
        }
        Verdict::Answer(answer_from_history(item, task))
    }

    fn by<'a>(&self, actor: Actor<'a>) -> By<'a> {
        By { now: self.clock.now(), node: self.node, actor }
    }
}

/// The places of what is said of runs up to their ends, and of what is said after that.
fn until_ended(items: &[Settlement]) -> (Vec<usize>, Vec<usize>) {
    let mut ended = HashSet::with_capacity(items.len());
    (0..items.len()).partition(|&at| {
        let Settlement { id, token, outcome } = &items[at];
        if matches!(outcome, Outcome::Heartbeat { .. }) {
            !ended.contains(&(*id, *token))
        } else {
            ended.insert((*id, *token))
        }
    })
}

/// The run that a settlement has ended, for the breaker of its tenant: who settles is a worker of the tenant, also where
/// a webhook brought it the task.
fn ended<'a>(tenant: &'a str, item: &'a Settlement, answer: Option<&Settled>) -> Option<EndedRun<'a>> {
    let (end, error) = match (&item.outcome, answer?) {
        (Outcome::Completed { .. }, Settled::Done { .. }) => (RunEnd::Succeeded, None),
        (Outcome::Failed { error, .. }, Settled::Done { .. }) => (RunEnd::Failed, Some(error.message.as_ref().into())),
        (Outcome::Released, Settled::Done { .. }) | (_, Settled::Cancelled) => (RunEnd::Released, None),
        _ => return None,
    };
    Some(EndedRun { tenant, target: "", task: item.id, end, error })
}

/// How often a settlement that loses a race is looked at again: each loss means that somebody else changed the
/// task, after which the token is stale, so two rounds decide; the third is for luck.
const ROUNDS: usize = 3;

enum Verdict {
    Answer(Settled),
    Apply(Box<Change>),
    Stop(Box<Change>),
}

/// The token does not hold the task any more: was this very settlement accepted before?
fn answer_from_history(item: &Settlement, task: &Task) -> Settled {
    let stale = Settled::Stale { state: task.state() };
    let held = task.trail.at_version(item.token).is_some_and(|entry| matches!(entry.step, Step::Started { .. }));
    let Some(next) = task.trail.at_version(item.token + 1).filter(|_| held) else { return stale };
    match (&next.step, &item.outcome) {
        (Step::Completed { .. }, Outcome::Completed { result }) if task.result == *result => Settled::Repeated,
        // A failure for good is not the one after which the task was to be tried again.
        (
            Step::Failed { outcome: FailedHow::Failed, error, .. }
            | Step::FailedUncounted { outcome: FailedHow::Failed, error, .. },
            Outcome::Failed { error: said, retryable, .. },
        ) if error == said && (*retryable || next.to == State::DeadLettered) => Settled::Repeated,
        (Step::GivenBack, Outcome::Released) => Settled::Repeated,
        (Step::CancelRequested, _) => Settled::Cancelled,
        _ => stale,
    }
}
