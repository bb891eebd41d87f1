//! Polls of pull workers: the queue in which they wait, and what they get.
//!
//! The API polls with [`PollQueue::poll`], the dispatcher answers through its [`PollReceiver`].
//! Invariant: the tasks of a [`Grant`] that its worker does not take go back to the dispatcher.

use std::time::Duration;

use punctual_core::store::StoreError;
use punctual_core::task::Task;
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

/// Claimed tasks on their way to a worker. If the worker disconnects and the grant is dropped, the
/// tasks go back to the dispatcher at once, and not only when their leases expire.
pub(crate) struct Grant {
    tasks: Vec<Task>,
    /// When the tasks are due, if that is not yet.
    not_before: Option<Instant>,
    returns: mpsc::UnboundedSender<Vec<Task>>,
}

impl Grant {
    /// Tasks that go to `returns` if the worker does not take them.
    pub fn new(tasks: Vec<Task>, returns: mpsc::UnboundedSender<Vec<Task>>) -> Self {
        Self { tasks, not_before: None, returns }
    }

    /// The same tasks, handed over at `due` at the earliest.
    pub fn not_before(mut self, due: Option<Instant>) -> Self {
        self.not_before = due;
        self
    }

    /// Waits until the tasks are due and hands them over; none if the worker has hung up by then.
    async fn take(mut self, has_hung_up: impl Fn() -> bool) -> Vec<Task> {
        if let Some(due) = self.not_before {
            tokio::time::sleep_until(due).await;
        }
        if has_hung_up() { Vec::new() } else { std::mem::take(&mut self.tasks) }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.tasks.is_empty() && self.returns.send(std::mem::take(&mut self.tasks)).is_err() {
            tracing::debug!(
                "a worker disconnected during the shutdown; the leases of the tasks claimed for it will expire"
            );
        }
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
        self.poll_unless(request, || false).await
    }

    /// The same for a worker that may hang up: `has_hung_up` is asked right before the tasks are
    /// handed over, and what was claimed for a worker that is gone goes to another at once.
    pub async fn poll_unless(
        &self,
        request: PollRequest,
        has_hung_up: impl Fn() -> bool,
    ) -> Result<Vec<Task>, PollError> {
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
            let nothing = || self.health.borrow().clone().map_or(Ok(Vec::new()), |error| Err(error.into()));
            return match answer.try_recv() {
                Ok(late) => Ok(late?.take(has_hung_up).await),
                Err(_) => nothing(),
            };
        };
        Ok(answered.unwrap_or(Err(PollError::Closed))?.take(has_hung_up).await)
    }
}
