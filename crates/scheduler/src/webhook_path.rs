//! The way of claimed webhooks: straight to the worker of this process, or through a broker.
//!
//! The push side of the dispatcher uses it. Without a broker a claim starts the runs: one write,
//! and as many tasks as may begin now or soon. With one, a claim queues the tasks, and the worker
//! that receives their messages starts them. Invariant: the slots of all tasks that are sent are
//! taken.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_core::breakers::target_of;
use punctual_core::broker::{Broker, BrokerError, Message, WEBHOOK_POOL};
use punctual_core::store::DispatchTo;
use punctual_core::task::Task;
use punctual_core::time::millis;

/// The webhook worker of this process.
#[async_trait]
pub trait LocalWorker: Send + Sync {
    /// Its name, and how long a run's hold outlasts its timeout.
    fn claims_as(&self) -> (String, Duration);

    /// How many more runs may begin now.
    fn room(&self) -> usize;

    /// Returns once there may be room. The caller checks `room` again.
    async fn wait_for_room(&self);

    /// Runs tasks that were started in its name. Once it has ended it returns them instead.
    fn run(&self, tasks: Vec<Task>, turn: CallTurn) -> Result<(), Vec<Task>>;
}

/// When a call may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallTurn {
    /// Once its target has a slot.
    InOrder,
    /// Now: the probe of a breaker does not wait for calls that may hang.
    AtOnce,
}

/// The way of claimed webhooks (see the module).
#[derive(Clone)]
pub enum WebhookPath {
    /// To the worker of this process.
    Worker(Arc<dyn LocalWorker>),
    /// Through a broker.
    Broker(Arc<dyn Broker>),
    /// This node pushes nothing.
    None,
}

/// Tasks that could not be sent: none of them was.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub tasks: Vec<Task>,
    pub error: BrokerError,
}

impl WebhookPath {
    /// What a claim does with the tasks. Through a broker they may stay unstarted for `visibility`.
    pub(crate) fn claims_to(&self, visibility: Duration) -> DispatchTo {
        match self {
            Self::Worker(worker) => {
                let (name, grace) = worker.claims_as();
                DispatchTo::Worker { name, grace_millis: millis(grace) }
            }
            Self::Broker(_) | Self::None => DispatchTo::Broker { visibility_millis: millis(visibility) },
        }
    }

    /// How many tasks can be sent now.
    pub(crate) async fn room(&self) -> usize {
        match self {
            Self::Worker(worker) => worker.room(),
            Self::Broker(broker) => broker.room(WEBHOOK_POOL).await.unwrap_or(0),
            Self::None => 0,
        }
    }

    /// Returns once there may be room.
    pub(crate) async fn wait_for_room(&self) {
        match self {
            Self::Worker(worker) => worker.wait_for_room().await,
            Self::Broker(broker) => broker.wait_for_room(WEBHOOK_POOL).await,
            Self::None => std::future::pending().await,
        }
    }

    /// Sends claimed tasks: all of them or none.
    pub(crate) async fn send(&self, tasks: Vec<Task>, turn: CallTurn) -> Result<(), Unsent> {
        let ended = |tasks| Unsent { tasks, error: BrokerError::Unavailable("the worker has ended".to_owned()) };
        match self {
            Self::Worker(worker) => worker.run(tasks, turn).map_err(ended),
            Self::Broker(broker) => {
                let sent = broker.publish(tasks.iter().map(message).collect()).await;
                sent.map_err(|error| Unsent { tasks, error })
            }
            Self::None => Err(ended(tasks)),
        }
    }
}

fn message(task: &Task) -> Message {
    let key = &task.lane.key;
    Message {
        task_id: task.id,
        version: task.position.version,
        tenant: key.tenant.clone(),
        priority: key.priority,
        pool: WEBHOOK_POOL.to_owned(),
        target: target_of(key).to_owned(),
    }
}
