//! The bounds of a pool: which messages it accepts or refuses, and which callers it notifies of
//! room.

use std::sync::Arc;

use punctual_core::broker::{BrokerError, Message};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{BrokerFactory, PLENTY, POOL, SOON, depth, message, next, nothing_comes, publish, room, subscribe};

/// A batch that does not fit is refused as a whole, and none of its messages is delivered in any
/// pool.
pub async fn publish_refuses_beyond_its_capacity(factory: &dyn BrokerFactory) {
    let broker = factory.open(10).await;
    let kept: Vec<Message> = (0..7).map(|_| message(POOL, 5)).collect();
    publish(&broker, kept.clone()).await;
    let refused = |batch: Vec<Message>| {
        let broker = Arc::clone(&broker);
        async move {
            let answer = broker.publish(batch).await;
            assert!(matches!(answer, Err(BrokerError::Full)), "{answer:?}");
        }
    };
    refused((0..4).map(|_| message(POOL, 9)).collect()).await;
    refused((0..1_000).map(|_| message(POOL, 9)).collect()).await;
    assert_eq!(depth(&broker, POOL).await, 7);
    let last: Vec<Message> = (0..3).map(|_| message(POOL, 5)).collect();
    publish(&broker, last.clone()).await;
    refused(vec![message(POOL, 9)]).await;
    refused(vec![message("other", 5), message(POOL, 5), message("other", 5)]).await;
    assert_eq!((depth(&broker, POOL).await, depth(&broker, "other").await), (10, 0));
    let mut subscription = subscribe(&broker, POOL, 1).await;
    for expected in kept.into_iter().chain(last) {
        let delivery = next(&mut subscription).await;
        assert_eq!(delivery.message, expected);
        delivery.ack();
    }
    nothing_comes(&mut subscription).await;
    publish(&broker, (0..10).map(|_| message(POOL, 5)).collect()).await;
}

/// Exactly `room` more messages are accepted. If there is no room, `wait_for_room` returns once
/// there is.
pub async fn room_is_what_publish_would_accept(factory: &dyn BrokerFactory) {
    let broker = factory.open(10).await;
    let mut subscription = subscribe(&broker, POOL, 10).await;
    timeout(SOON, broker.wait_for_room(POOL)).await.expect("there is room");
    for _ in 0..5 {
        let room_now = room(&broker, POOL).await;
        assert!((1..=10).contains(&room_now), "{room_now} of 10");
        let too_many = broker.publish((0..=room_now).map(|_| message(POOL, 5)).collect()).await;
        assert!(matches!(too_many, Err(BrokerError::Full)), "{too_many:?}");
        publish(&broker, (0..room_now).map(|_| message(POOL, 5)).collect()).await;
        assert_eq!(room(&broker, POOL).await, 0);

        let waiter = tokio::spawn({
            let broker = Arc::clone(&broker);
            async move {
                // The wake-up may be spurious; the caller asks again.
                while room(&broker, POOL).await == 0 {
                    broker.wait_for_room(POOL).await;
                }
            }
        });
        for _ in 0..4 {
            next(&mut subscription).await.ack();
        }
        timeout(SOON, waiter).await.expect("the waiter is notified of room").expect("the waiter lives");
    }
}

/// Every caller that waits for room is notified, not only the first.
pub async fn wait_for_room_wakes_every_waiter(factory: &dyn BrokerFactory) {
    let broker = factory.open(20).await;
    for _ in 0..10 {
        let room_now = room(&broker, POOL).await;
        publish(&broker, (0..room_now).map(|_| message(POOL, 5)).collect()).await;
        let mut waiters = JoinSet::new();
        for _ in 0..10 {
            let broker = Arc::clone(&broker);
            waiters.spawn(async move {
                while room(&broker, POOL).await == 0 {
                    broker.wait_for_room(POOL).await;
                }
            });
        }
        tokio::task::yield_now().await;
        let mut subscription = subscribe(&broker, POOL, 20).await;
        next(&mut subscription).await.ack();
        timeout(SOON, waiters.join_all()).await.expect("all waiters are notified of room");
        next(&mut subscription).await.ack();
    }
}

/// The depth of a pool counts its waiting messages, and not the delivered ones.
pub async fn depth_counts_waiting_messages(factory: &dyn BrokerFactory) {
    let broker = factory.open(PLENTY).await;
    assert_eq!(depth(&broker, POOL).await, 0);
    publish(&broker, (0..5).map(|_| message(POOL, 5)).collect()).await;
    publish(&broker, vec![message("other", 5)]).await;
    assert_eq!((depth(&broker, POOL).await, depth(&broker, "other").await), (5, 1));
    let mut subscription = subscribe(&broker, POOL, 1).await;
    let delivery = next(&mut subscription).await;
    assert_eq!(depth(&broker, POOL).await, 4);
    delivery.ack();
    let delivery = next(&mut subscription).await;
    assert_eq!(depth(&broker, POOL).await, 3);
    drop(subscription);
    drop(delivery);
    assert_eq!(depth(&broker, POOL).await, 4, "a returned message waits again");
}
