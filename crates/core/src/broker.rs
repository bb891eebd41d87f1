//! The port of the broker, which carries messages from the dispatcher to the workers.
//!
//! A message names a task and the version it was queued at, without the payload. A broker knows
//! neither time nor state. Messages may be delivered twice or not at all: the store's version check
//! handles the first, and the reaper the second.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::broker`.
//!
//! - `publish_reaches_a_subscriber`: a published message is delivered once to one subscriber of its
//!   pool.
//! - `pools_are_apart`: a subscriber gets messages of its own pool only.
//! - `urgent_first`: the waiting messages of a tenant are delivered by priority, then in order.
//! - `prefetch_bounds_what_is_unacknowledged`: a subscription never has more than `prefetch`
//!   unacknowledged deliveries.
//! - `unacknowledged_is_delivered_again`: when a subscription or a delivery is dropped without
//!   `ack`.
//! - `acknowledged_is_gone`: it is never delivered again.
//! - `publish_refuses_beyond_its_capacity`: [`BrokerError::Full`], and nothing of that batch is
//!   published.
//! - `room_is_what_publish_would_accept`, and `wait_for_room` returns once there is room.
//! - `close_ends_subscriptions`: `recv` answers `None`, `publish` fails.

use async_trait::async_trait;

use crate::ids::TaskId;

/// The pool of workers that push webhooks.
pub const WEBHOOK_POOL: &str = "webhook";

/// Why a call of the broker failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BrokerError {
    /// It is at its capacity. Publish again when there is room.
    #[error("the broker is full")]
    Full,
    /// It cannot be reached or was closed. Whether it accepted the message is not known.
    #[error("the broker is unavailable: {0}")]
    Unavailable(String),
}

/// The notice that a task is queued for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The task.
    pub task_id: TaskId,
    /// The version it was queued at.
    pub version: u64,
    /// Its tenant.
    pub tenant: String,
    /// 0 to 9.
    pub priority: u8,
    /// The pool of workers it is for.
    pub pool: String,
    /// The target it will be pushed to.
    pub target: String,
}

/// Carries messages from the dispatcher to the workers (see the module's contract).
#[async_trait]
pub trait Broker: Send + Sync {
    /// Publishes messages; returns once the broker has confirmed them all.
    async fn publish(&self, messages: Vec<Message>) -> Result<(), BrokerError>;

    /// Subscribes to a pool, with at most `prefetch` unacknowledged deliveries at a time.
    async fn subscribe(&self, pool: &str, prefetch: usize) -> Result<Box<dyn Subscription>, BrokerError>;

    /// The number of messages that wait in a pool, without the delivered ones.
    async fn depth(&self, pool: &str) -> Result<usize, BrokerError>;

    /// How many more messages a pool accepts now.
    async fn room(&self, pool: &str) -> Result<usize, BrokerError>;

    /// Returns once a pool may accept more messages. The caller checks `room` again.
    async fn wait_for_room(&self, pool: &str);

    /// Stops accepting and delivering messages.
    async fn close(&self);
}

/// A stream of deliveries.
#[async_trait]
pub trait Subscription: Send {
    /// The next delivery; none once the broker is closed. Dropping the future loses nothing.
    async fn recv(&mut self) -> Option<Delivery>;
}

/// One delivered message. Dropped without `ack`, it is delivered again.
pub struct Delivery {
    /// The message.
    pub message: Message,
    settle: Option<Box<dyn FnOnce(bool) + Send + Sync>>,
}

impl Delivery {
    /// A delivery that calls `settle` at its end: with true if acknowledged, with false if dropped.
    pub fn new(message: Message, settle: impl FnOnce(bool) + Send + Sync + 'static) -> Self {
        Self { message, settle: Some(Box::new(settle)) }
    }

    /// Acknowledges the message. Consumes the delivery, so that it cannot be settled twice.
    pub fn ack(mut self) {
        if let Some(settle) = self.settle.take() {
            settle(true);
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if let Some(settle) = self.settle.take() {
            settle(false);
        }
    }
}
