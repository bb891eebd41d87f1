use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use punctual_core::ids::TaskId;

use super::*;

fn message(pool: &str, priority: u8) -> Message {
    let (tenant, target) = ("t".to_owned(), "http://h:80".to_owned());
    Message { task_id: TaskId::new(), version: 2, tenant, priority, pool: pool.to_owned(), target }
}

fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

async fn next(subscription: &mut Box<dyn Subscription>) -> Delivery {
    subscription.recv().await.expect("the broker is open")
}

#[tokio::test]
async fn a_batch_over_pools_is_taken_whole_or_not_at_all() {
    let broker = MemoryBroker::new(2);
    broker.publish(vec![message("a", 5)]).await.unwrap();
    let batch = vec![message("b", 5), message("a", 5), message("a", 5)];
    assert!(matches!(broker.publish(batch).await, Err(BrokerError::Full)));
    assert_eq!((broker.depth("a").await.unwrap(), broker.depth("b").await.unwrap()), (1, 0));
    assert_eq!((broker.room("a").await.unwrap(), broker.room("b").await.unwrap()), (1, 2));
}

#[tokio::test]
async fn a_delivery_counts_until_it_is_acknowledged() {
    let broker = MemoryBroker::new(1);
    broker.publish(vec![message("a", 5)]).await.unwrap();
    let mut subscription = broker.subscribe("a", 8).await.unwrap();
    let delivery = next(&mut subscription).await;
    assert_eq!((broker.depth("a").await.unwrap(), broker.room("a").await.unwrap()), (0, 0));
    assert!(poll_once(broker.wait_for_room("a")).is_pending());
    delivery.ack();
    broker.wait_for_room("a").await;
    assert_eq!(broker.room("a").await.unwrap(), 1);
}

#[tokio::test]
async fn a_returned_message_keeps_its_order() {
    let broker = MemoryBroker::new(8);
    let sent: Vec<Message> = [5, 5, 5, 9].into_iter().map(|priority| message("a", priority)).collect();
    broker.publish(sent.clone()).await.unwrap();
    let mut subscription = broker.subscribe("a", 8).await.unwrap();
    let mut taken = Vec::new();
    for _ in 0..3 {
        taken.push(next(&mut subscription).await);
    }
    drop(taken);
    for wanted in [3, 0, 1, 2] {
        let delivery = next(&mut subscription).await;
        assert_eq!(delivery.message, sent[wanted]);
        delivery.ack();
    }
}

#[tokio::test]
async fn a_dropped_wait_takes_nothing() {
    let broker = MemoryBroker::new(8);
    let mut subscription = broker.subscribe("a", 1).await.unwrap();
    for _ in 0..3 {
        assert!(poll_once(subscription.recv()).is_pending());
    }
    broker.publish(vec![message("a", 5)]).await.unwrap();
    let delivery = next(&mut subscription).await;
    assert!(poll_once(subscription.recv()).is_pending(), "beyond the prefetch");
    delivery.ack();
}

#[tokio::test]
async fn a_late_ack_removes_only_a_waiting_message() {
    let broker = MemoryBroker::new(8);
    broker.publish(vec![message("a", 5), message("a", 5)]).await.unwrap();
    let mut gone = broker.subscribe("a", 8).await.unwrap();
    let (first, second) = (next(&mut gone).await, next(&mut gone).await);
    drop(gone);
    let mut other = broker.subscribe("a", 8).await.unwrap();
    let again = next(&mut other).await;
    assert_eq!(again.message, first.message);
    first.ack();
    second.ack();
    assert_eq!(broker.depth("a").await.unwrap(), 0, "the second message waited, and its ack removed it");
    drop(again);
    assert_eq!(broker.depth("a").await.unwrap(), 1, "the other subscriber has dropped the first message");
}

#[tokio::test]
async fn a_closed_broker_ends_every_wait() {
    let broker = MemoryBroker::new(1);
    broker.publish(vec![message("a", 5)]).await.unwrap();
    let mut subscription = broker.subscribe("b", 1).await.unwrap();
    let (waiting, closing) = (broker.clone(), broker.clone());
    let (received, (), ()) = tokio::join!(subscription.recv(), waiting.wait_for_room("a"), closing.close());
    assert!(received.is_none());
    assert!(broker.publish(Vec::new()).await.is_err() && broker.subscribe("a", 1).await.is_err());
    assert!(broker.depth("a").await.is_err() && broker.room("a").await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_wake_up_is_lost_between_threads() {
    const MESSAGES: usize = 4_000;
    let broker = MemoryBroker::new(7);
    let publisher = tokio::spawn({
        let broker = broker.clone();
        async move {
            for _ in 0..MESSAGES {
                let message = message("a", 5);
                while broker.publish(vec![message.clone()]).await.is_err() {
                    broker.wait_for_room("a").await;
                }
            }
        }
    });
    let consumers = (0..3).map(|which| {
        let broker = broker.clone();
        tokio::spawn(async move {
            let mut seen = Vec::new();
            let mut subscription = broker.subscribe("a", 2).await.unwrap();
            while let Some(delivery) = subscription.recv().await {
                // One consumer drops some deliveries, so that they wake another consumer.
                if which == 0 && rand_bit() {
                    continue;
                }
                seen.push(delivery.message.task_id);
                delivery.ack();
            }
            seen
        })
    });
    let consumers: Vec<_> = consumers.collect();
    publisher.await.unwrap();
    while broker.room("a").await.unwrap() < 7 {
        tokio::task::yield_now().await;
    }
    broker.close().await;
    let mut seen = Vec::new();
    for consumer in consumers {
        seen.extend(consumer.await.unwrap());
    }
    assert_eq!(seen.len(), MESSAGES);
    assert_eq!(seen.iter().collect::<HashSet<_>>().len(), MESSAGES);
}

/// A coin: the last bit of a fresh random id.
fn rand_bit() -> bool {
    TaskId::new().uuid().as_bytes()[15] & 1 == 0
}

#[tokio::test]
async fn tenants_are_served_round_robin_most_urgent_first() {
    let broker = MemoryBroker::new(100);
    let of = |tenant: &str, priority| Message { tenant: tenant.to_owned(), ..message("a", priority) };
    broker.publish((0..10).map(|_| of("busy", 9)).collect()).await.unwrap();
    broker.publish(vec![of("quiet", 1), of("quiet", 5)]).await.unwrap();
    let mut subscription = broker.subscribe("a", 100).await.unwrap();
    let mut taken = Vec::new();
    for _ in 0..6 {
        let delivery = next(&mut subscription).await;
        taken.push((delivery.message.tenant.clone(), delivery.message.priority));
        delivery.ack();
    }
    let found: Vec<(&str, u8)> = taken.iter().map(|(tenant, priority)| (tenant.as_str(), *priority)).collect();
    assert_eq!(found, [("busy", 9), ("quiet", 5), ("busy", 9), ("quiet", 1), ("busy", 9), ("busy", 9)]);
    assert_eq!(broker.depth("a").await.unwrap(), 6);
}
