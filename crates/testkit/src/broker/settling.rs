//! The ends of deliveries: acknowledged, dropped, held, or still open when the broker closes.

use std::collections::BTreeSet;

use punctual_core::broker::{BrokerError, Delivery, Message};
use punctual_core::ids::TaskId;
use tokio::time::timeout;

use super::{BrokerFactory, PLENTY, POOL, SOON, depth, message, next, nothing_comes, publish, room, subscribe};

/// There is no delivery beyond the prefetch until one is acknowledged or dropped. Each subscription
/// has its own prefetch.
pub async fn prefetch_bounds_what_is_unacknowledged(factory: &dyn BrokerFactory) {
    let broker = factory.open(PLENTY).await;
    publish(&broker, (0..20).map(|_| message(POOL, 5)).collect()).await;
    for prefetch in [1, 3] {
        let mut subscription = subscribe(&broker, POOL, prefetch).await;
        let mut held = Vec::new();
        for _ in 0..prefetch {
            held.push(next(&mut subscription).await);
        }
        nothing_comes(&mut subscription).await;
        held.pop().expect("there is one").ack();
        held.push(next(&mut subscription).await);
        nothing_comes(&mut subscription).await;
        drop(held.pop());
        held.push(next(&mut subscription).await);
        nothing_comes(&mut subscription).await;

        let mut other = subscribe(&broker, POOL, 1).await;
        let elsewhere = next(&mut other).await;
        nothing_comes(&mut other).await;
        let waiting = tokio::spawn(async move {
            let delivery = next(&mut subscription).await;
            (subscription, delivery)
        });
        held.pop().expect("there is one").ack();
        let (_subscription, delivery) = waiting.await.expect("the subscriber lives");
        delivery.ack();
        elsewhere.ack();
        held.drain(..).for_each(Delivery::ack);
    }
}

/// Deliveries that a worker dropped, or held when it went away, go to the next worker.
pub async fn unacknowledged_is_delivered_again(factory: &dyn BrokerFactory) {
    let broker = factory.open(PLENTY).await;
    let sent = message(POOL, 5);
    publish(&broker, vec![sent.clone()]).await;
    let mut subscription = subscribe(&broker, POOL, 1).await;
    for _ in 0..5 {
        assert_eq!(next(&mut subscription).await.message, sent, "a delivery that was dropped comes again");
    }
    let mut other = subscribe(&broker, POOL, 1).await;
    let held = next(&mut subscription).await;
    nothing_comes(&mut other).await;
    drop(subscription);
    drop(held);
    let held = next(&mut other).await;
    assert_eq!(held.message, sent);
    held.ack();

    // Dropping a subscription returns its whole prefetch, including messages that it never
    // received.
    let sent: BTreeSet<TaskId> = {
        let batch: Vec<Message> = (0..10).map(|_| message(POOL, 5)).collect();
        publish(&broker, batch.clone()).await;
        batch.iter().map(|sent| sent.task_id).collect()
    };
    let mut greedy = subscribe(&broker, POOL, 10).await;
    let held = [next(&mut greedy).await, next(&mut greedy).await];
    drop(held);
    drop(greedy);
    let mut got = BTreeSet::new();
    for _ in 0..10 {
        let delivery = next(&mut other).await;
        got.insert(delivery.message.task_id);
        delivery.ack();
    }
    assert_eq!(got, sent);
    nothing_comes(&mut other).await;
    assert_eq!(room(&broker, POOL).await, PLENTY, "a message that was delivered again took room twice");
}

/// After `ack` a message is never delivered again, whatever is dropped.
pub async fn acknowledged_is_gone(factory: &dyn BrokerFactory) {
    let broker = factory.open(PLENTY).await;
    publish(&broker, (0..10).map(|_| message(POOL, 5)).collect()).await;
    let mut subscription = subscribe(&broker, POOL, 5).await;
    for _ in 0..10 {
        next(&mut subscription).await.ack();
    }
    nothing_comes(&mut subscription).await;
    drop(subscription);
    let mut next_one = subscribe(&broker, POOL, 5).await;
    nothing_comes(&mut next_one).await;
    assert_eq!((depth(&broker, POOL).await, room(&broker, POOL).await), (0, PLENTY));

    // An ack after its subscription was dropped does no harm.
    publish(&broker, vec![message(POOL, 5)]).await;
    let late = next(&mut next_one).await;
    drop(next_one);
    late.ack();
    assert_eq!(depth(&broker, "elsewhere").await, 0);
}

/// A closed broker delivers and accepts nothing; waiting callers return, and late acks do no harm.
pub async fn close_ends_subscriptions(factory: &dyn BrokerFactory) {
    let broker = factory.open(PLENTY).await;
    let mut idle = subscribe(&broker, "idle", 5).await;
    publish(&broker, (0..5).map(|_| message(POOL, 5)).collect()).await;
    let mut busy = subscribe(&broker, POOL, 2).await;
    let (first, second) = (next(&mut busy).await, next(&mut busy).await);
    // `join!` polls `recv` first, so that a caller waits when the broker is closed.
    let ended = timeout(SOON, async { tokio::join!(idle.recv(), broker.close()) }).await;
    let (found, ()) = ended.expect("close waits for no delivery, and waiting callers return");
    assert!(found.is_none(), "a delivery came out of an empty pool");
    first.ack();
    drop(second);
    for _ in 0..2 {
        let after = timeout(SOON, busy.recv()).await.expect("recv answers after close");
        assert!(after.is_none(), "a closed broker delivers");
    }
    let answer = broker.publish(vec![message(POOL, 5)]).await;
    assert!(matches!(answer, Err(BrokerError::Unavailable(_))), "{answer:?}");
    timeout(SOON, broker.close()).await.expect("closing twice is allowed");
}
