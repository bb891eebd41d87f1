//! The conformance suite of [`punctual_core::broker::Broker`]: each sentence of its
//! contract is a function here of the same name.
//!
//! A test can only wait to show that a message does *not* arrive. These waits are short (`QUIET`),
//! and no test depends on their length to pass.

mod delivery;
mod room;
mod settling;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_core::broker::{Broker, Delivery, Message, Subscription};
use punctual_core::ids::TaskId;
use tokio::time::timeout;

pub use delivery::*;
pub use room::*;
pub use settling::*;

/// How long a test waits to show that nothing arrives.
const QUIET: Duration = Duration::from_millis(60);

/// How long a test waits for a message that must arrive.
const SOON: Duration = Duration::from_secs(20);

const POOL: &str = "webhook";

/// Enough room for every test that is not about room.
const PLENTY: usize = 100_000;

/// Opens empty brokers. Every test makes one.
#[async_trait]
pub trait BrokerFactory: Send + Sync {
    /// Opens a broker that holds at most `capacity` messages in a pool.
    async fn open(&self, capacity: usize) -> Arc<dyn Broker>;
}

/// Stamps the suite. `$factory` is an expression that returns a `BrokerFactory`.
#[macro_export]
macro_rules! broker_conformance {
    ($factory:expr) => {
        $crate::stamp! { broker, $factory;
            publish_reaches_a_subscriber,
            pools_are_apart,
            urgent_first,
            prefetch_bounds_what_is_unacknowledged,
            unacknowledged_is_delivered_again,
            acknowledged_is_gone,
            publish_refuses_beyond_its_capacity,
            room_is_what_publish_would_accept,
            close_ends_subscriptions,

            a_message_arrives_as_it_was_sent,
            many_subscribers_share_the_work,
            a_dropped_recv_loses_nothing,
            depth_counts_waiting_messages,
            wait_for_room_wakes_every_waiter,
            a_wake_up_is_never_lost,
            a_batch_wakes_as_many_as_it_can_feed,
        }
    };
}

fn message(pool: &str, priority: u8) -> Message {
    Message {
        task_id: TaskId::new(),
        version: 2,
        tenant: "acme".into(),
        priority,
        pool: pool.into(),
        target: "http://a.test:80".into(),
    }
}

async fn publish(broker: &Arc<dyn Broker>, messages: Vec<Message>) {
    timeout(SOON, broker.publish(messages)).await.expect("publish answers").expect("the messages are taken");
}

async fn subscribe(broker: &Arc<dyn Broker>, pool: &str, prefetch: usize) -> Box<dyn Subscription> {
    broker.subscribe(pool, prefetch).await.expect("a pool can be subscribed to")
}

async fn depth(broker: &Arc<dyn Broker>, pool: &str) -> usize {
    broker.depth(pool).await.expect("depth answers")
}

async fn room(broker: &Arc<dyn Broker>, pool: &str) -> usize {
    broker.room(pool).await.expect("room answers")
}

async fn next(subscription: &mut Box<dyn Subscription>) -> Delivery {
    let delivery = timeout(SOON, subscription.recv()).await.expect("a delivery comes");
    delivery.expect("the broker is open")
}

async fn nothing_comes(subscription: &mut Box<dyn Subscription>) {
    if let Ok(delivery) = timeout(QUIET, subscription.recv()).await {
        panic!("something came: {:?}", delivery.map(|delivery| delivery.message.clone()));
    }
}
