//! The desk where pull workers ask for tasks and wait.

use std::time::Duration;

use punctual_core::store::StoreError;
use punctual_core::task::Task;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

/// What a worker asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wants {
    /// Tasks of these queues.
    Queues(Vec<String>),
    /// Tasks of these types, in any queue.
    Kinds(Vec<String>),
}

/// A worker's request.
#[derive(Clone, Debug)]
pub struct Ask {
    /// Its tenant.
    pub tenant: String,
    /// Its name.
    pub worker: String,
    /// What it asks for.
    pub wants: Wants,
    /// At most how many.
    pub max_tasks: usize,
    /// For how long it wants each.
    pub lease_millis: u64,
    /// How long it is willing to wait for the first.
    pub wait: Duration,
}

/// Why a worker got no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeskError {
    /// The node is shutting down; ask another, or again.
    #[error("the node is shutting down")]
    Closed,
    /// Too many workers wait here already.
    #[error("too many workers are waiting")]
    Crowded,
    /// The store did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// An [`Ask`] and where to answer it.
pub(crate) struct Waiting {
    pub ask: Ask,
    pub reply: oneshot::Sender<Result<Handout, DeskError>>,
}

/// Claimed tasks on their way to a worker. Dropped on the way, because the worker has hung up, they go back to the
/// dispatcher instead of waiting for their leases to expire.
pub(crate) struct Handout {
    tasks: Vec<Task>,
    /// They are due then; none when they are due.
    not_before: Option<Instant>,
    returns: mpsc::UnboundedSender<Vec<Task>>,
}

impl Handout {
    pub fn new(tasks: Vec<Task>, returns: mpsc::UnboundedSender<Vec<Task>>) -> Self {
        Self { tasks, not_before: None, returns }
    }

    /// The same; they are not due before then.
    pub fn not_before(mut self, due: Option<Instant>) -> Self {
        self.not_before = due;
        self
    }

    /// The tasks, when they are due.
    async fn take(mut self) -> Vec<Task> {
        if let Some(due) = self.not_before {
            tokio::time::sleep_until(due).await;
        }
        std::mem::take(&mut self.tasks)
    }
}

impl Drop for Handout {
    fn drop(&mut self) {
        if !self.tasks.is_empty() && self.returns.send(std::mem::take(&mut self.tasks)).is_err() {
            tracing::debug!(
                "tasks were claimed for a worker that hung up during the shutdown; their leases will expire"
            );
        }
    }
}

/// The workers' side of the desk. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Desk {
    asks: mpsc::Sender<Waiting>,
    trouble: watch::Receiver<Trouble>,
}

/// Why nothing can be claimed at the moment; none when all is well.
pub(crate) type Trouble = Option<StoreError>;

/// The dispatcher's side of the desk.
pub(crate) struct Counter {
    pub asks: mpsc::Receiver<Waiting>,
    pub trouble: watch::Sender<Trouble>,
}

impl Desk {
    /// A desk, and the end at which the dispatcher sits.
    pub(crate) fn new(capacity: usize) -> (Self, Counter) {
        let (asks, waiting) = mpsc::channel(capacity);
        let (tell, trouble) = watch::channel(None);
        (Self { asks, trouble }, Counter { asks: waiting, trouble: tell })
    }

    /// Waits for tasks; empty when none came up within the wait, which is not said while none can be claimed. The tasks are `RUNNING` and this worker's: the
    /// version of each is its fencing token.
    pub async fn lease(&self, ask: Ask) -> Result<Vec<Task>, DeskError> {
        let (reply, mut answer) = oneshot::channel();
        let wait = ask.wait;
        self.asks.try_send(Waiting { ask, reply }).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => DeskError::Crowded,
            mpsc::error::TrySendError::Closed(_) => DeskError::Closed,
        })?;
        let answered = if wait.is_zero() {
            answer.await
        } else if let Ok(answered) = tokio::time::timeout(wait, &mut answer).await {
            answered
        } else {
            answer.close();
            let nothing = || self.trouble.borrow().clone().map_or(Ok(Vec::new()), |error| Err(error.into()));
            return match answer.try_recv() {
                Ok(late) => Ok(late?.take().await),
                Err(_) => nothing(),
            };
        };
        Ok(answered.unwrap_or(Err(DeskError::Closed))?.take().await)
    }
}
