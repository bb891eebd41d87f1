//! Polls of pull workers: the queue in which they wait, and what they get.
//!
//! The API polls with [`PollQueue::poll`], the dispatcher answers through its [`PollReceiver`].
//! Invariant: the tasks of a [`HandOver`] that is not confirmed go back to the dispatcher.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::ids::TaskId;
use punctual_core::lane::Lane;
use punctual_core::state::Position;
use punctual_core::store::StoreError;
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// Which tasks a worker polls for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PollFilter {
    /// Tasks of these queues.
    Queues(Vec<String>),
    /// Tasks of these types, in any queue.
    Kinds(Vec<String>),
}

/// A worker's request for tasks.
#[derive(Clone, Debug)]
pub struct PollRequest {
    /// The worker's tenant.
    pub tenant: String,
    /// The worker's name.
    pub worker: String,
    /// Which tasks it wants.
    pub filter: PollFilter,
    /// The maximum number of tasks it takes.
    pub max_tasks: usize,
    /// How long it wants to hold each task.
    pub lease_millis: u64,
    /// How long it waits for the first task.
    pub wait: Duration,
}

/// Why a poll got no tasks.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PollError {
    /// The node is shutting down; the worker may poll another node, or this one again.
    #[error("the node is shutting down")]
    Closed,
    /// Too many workers are waiting already.
    #[error("too many workers are waiting")]
    Crowded,
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A [`PollRequest`] and the channel for its answer.
pub(crate) struct WaitingPoll {
    pub request: PollRequest,
    pub reply: oneshot::Sender<Result<Grant, PollError>>,
}

impl WaitingPoll {
    /// Answers the worker.
    pub fn answer(self, answer: Result<Grant, PollError>) {
        if self.reply.send(answer).is_err() {
            tracing::debug!("a worker disconnected before its poll was answered; its tasks are given back");
        }
    }
}

/// Claimed tasks on their way to a worker.
pub(crate) struct Grant {
    tasks: Vec<Task>,
    /// When the tasks are due, if that is not yet.
    not_before: Option<Instant>,
    hand_over: HandOver,
}

impl Grant {
    /// Tasks that go to `returns` if the worker does not get them.
    pub fn new(tasks: Vec<Task>, returns: mpsc::UnboundedSender<Vec<UntakenTask>>) -> Self {
        let untaken = tasks.iter().map(UntakenTask::of).collect();
        Self { tasks, not_before: None, hand_over: HandOver { untaken, returns } }
    }

    /// The same tasks, handed over at `due` at the earliest.
    pub fn not_before(mut self, due: Option<Instant>) -> Self {
        self.not_before = due;
        self
    }

    /// Waits until the tasks are due.
    async fn take(self) -> (Vec<Task>, Option<HandOver>) {
        if let Some(due) = self.not_before {
            tokio::time::sleep_until(due).await;
        }
        (self.tasks, Some(self.hand_over))
    }
}

/// The hand-over of claimed tasks to a worker. If it is dropped before it is confirmed, the tasks
/// go back to the dispatcher at once, and not only when their leases expire.
#[must_use = "tasks that are handed over must be confirmed"]
pub struct HandOver {
    untaken: Vec<UntakenTask>,
    returns: mpsc::UnboundedSender<Vec<UntakenTask>>,
}

impl HandOver {
    /// The worker gets the tasks.
    pub fn confirm(mut self) {
        self.untaken.clear();
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        if !self.untaken.is_empty() && self.returns.send(std::mem::take(&mut self.untaken)).is_err() {
            tracing::debug!(
                "a worker disconnected during the shutdown; the leases of the tasks claimed for it will expire"
            );
        }
    }
}

/// A claimed task that its claimant has not taken, as far as it is needed to give it back.
#[derive(Clone, Debug)]
pub(crate) struct UntakenTask {
    pub id: TaskId,
    pub lane: Arc<Lane>,
    pub position: Position,
    pub due_at: Timestamp,
}

impl UntakenTask {
    pub fn of(task: &Task) -> Self {
        Self { id: task.id, lane: Arc::clone(&task.lane), position: task.position, due_at: task.due_at }
    }
}

/// Why nothing can be claimed at the moment; none while the store answers.
pub(crate) type StoreHealth = Option<StoreError>;

/// The workers' end of the queue. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PollQueue {
    polls: mpsc::Sender<WaitingPoll>,
    health: watch::Receiver<StoreHealth>,
}

/// The dispatcher's end of the queue.
pub(crate) struct PollReceiver {
    pub polls: mpsc::Receiver<WaitingPoll>,
    pub health: watch::Sender<StoreHealth>,
}

impl PollQueue {
    /// Both ends of a queue for `capacity` polls.
    pub(crate) fn new(capacity: usize) -> (Self, PollReceiver) {
        let (polls, received) = mpsc::channel(capacity);
        let (reported, health) = watch::channel(None);
        (Self { polls, health }, PollReceiver { polls: received, health: reported })
    }

    /// Waits for tasks. Returns an empty list on timeout, or the store's error if claiming is
    /// failing. The tasks are `RUNNING` and held by this worker; the version of each is its fencing
    /// token.
    pub async fn poll(&self, request: PollRequest) -> Result<Vec<Task>, PollError> {
        let (tasks, hand_over) = self.poll_unconfirmed(request).await?;
        if let Some(hand_over) = hand_over {
            hand_over.confirm();
        }
        Ok(tasks)
    }

    /// The same for a caller that may yet fail to hand the tasks over. It confirms when it has.
    pub async fn poll_unconfirmed(&self, request: PollRequest) -> Result<(Vec<Task>, Option<HandOver>), PollError> {
        let (reply, mut answer) = oneshot::channel();
        let wait = request.wait;
        self.polls.try_send(WaitingPoll { request, reply }).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => PollError::Crowded,
            mpsc::error::TrySendError::Closed(_) => PollError::Closed,
        })?;
        let answered = if wait.is_zero() {
            answer.await
        } else if let Ok(answered) = tokio::time::timeout(wait, &mut answer).await {
            answered
        } else {
            answer.close();
            let nothing = || self.health.borrow().clone().map_or(Ok((Vec::new(), None)), |error| Err(error.into()));
            return match answer.try_recv() {
                Ok(late) => Ok(late?.take().await),
                Err(_) => nothing(),
            };
        };
        Ok(answered.unwrap_or(Err(PollError::Closed))?.take().await)
    }
}
