//! How messages reach subscribers: once, in their own pool, in order, and without a lost wake-up.

use std::collections::BTreeSet;
use std::sync::Arc;

use punctual_core::broker::Message;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{BrokerFactory, PLENTY, POOL, SOON, depth, message, next, nothing_comes, publish, room, subscribe};

/// A message is delivered once, to a subscriber from before or after it was published.
pub async fn publish_reaches_a_subscriber(factory: &dyn BrokerFactory) {
    let broker = factory.open(PLENTY).await;
    publish(&broker, vec![message(POOL, 5)]).await;
    let mut early = subscribe(&broker, POOL, 10).await;
    next(&mut early).await.ack();

    let waiting = tokio::spawn(async move {
        let delivery = next(&mut early).await;
        (early, delivery)
    });
    let sent = message(POOL, 5);
    publish(&broker, vec![sent.clone()]).await;
    let (mut early, delivery) = waiting.await.expect("the subscriber lives");
    assert_eq!(delivery.message, sent);
    let mut late = subscribe(&broker, POOL, 10).await;
    nothing_comes(&mut late).await;
    nothing_comes(&mut early).await;
    delivery.ack();
    publish(&broker, vec![]).await;
    nothing_comes(&mut late).await;
}

/// Every field comes out as it went in.
pub async fn a_message_arrives_as_it_was_sent(factory: &dyn BrokerFactory) {
    let broker = factory.open(PLENTY).await;
    let odd = Message {
        version: u64::MAX >> 1,
        tenant: "Ünïcode \"& Söhne\" 🦀\n".into(),
        priority: 0,
        target: "https://例え.test:8443".into(),
        ..message("pool/é", 0)
    };
    let empty =
        Message { tenant: String::new(), target: String::new(), version: 0, priority: 9, ..message("pool/é", 9) };
    let mut subscription = subscribe(&broker, "pool/é", 10).await;
    for expected in [odd, empty] {
        publish(&broker, vec![expected.clone()]).await;
        let delivery = next(&mut subscription).await;
        assert_eq!(delivery.message, expected);
        delivery.ack();
    }
}

/// Each of many messages goes to one of many subscribers, and none is left over.
pub async fn many_subscribers_share_the_work(factory: &dyn BrokerFactory) {
    let broker = factory.open(PLENTY).await;
    let sent: Vec<Message> = (0..2_000).map(|number| message(POOL, u8::try_from(number % 10).unwrap())).collect();
    let mut workers = JoinSet::new();
    for number in 0..8 {
        let mut subscription = subscribe(&broker, POOL, 1 + number * 3).await;
        workers.spawn(async move {
            let mut got = Vec::new();
            while let Some(delivery) = subscription.recv().await {
                got.push(delivery.message.task_id);
                delivery.ack();
                tokio::task::yield_now().await;
            }
            got
        });
    }
    for batch in sent.chunks(37) {
        publish(&broker, batch.to_vec()).await;
    }
    let empty = async {
        // An acknowledged message frees its room: when all room is free, all were acknowledged.
        while room(&broker, POOL).await < PLENTY || depth(&broker, POOL).await > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, empty).await.expect("all messages are acknowledged");
    broker.close().await;
    let got = workers.join_all().await.concat();
    assert_eq!(got.len(), sent.len(), "a message was delivered twice, or not at all");
    assert_eq!(got.into_iter().collect::<BTreeSet<_>>(), sent.iter().map(|sent| sent.task_id).collect());
}

/// A message is seen, counted and consumed only in the pool it was published to.
pub async fn pools_are_apart(factory: &dyn BrokerFactory) {
    let broker = factory.open(PLENTY).await;
    let pools = ["webhook", "Webhook", "webhook2", ""];
    let mut subscriptions = Vec::new();
    for pool in pools {
        subscriptions.push(subscribe(&broker, pool, 100).await);
    }
    let sent: Vec<Message> = (0..40).map(|number| message(pools[number % 3], 5)).collect();
    publish(&broker, sent.clone()).await;
    for (subscription, pool) in subscriptions.iter_mut().zip(pools).take(3) {
        for expected in sent.iter().filter(|sent| sent.pool == pool) {
            let delivery = next(subscription).await;
            assert_eq!(&delivery.message, expected, "in the order in which they were published");
            delivery.ack();
        }
        nothing_comes(subscription).await;
    }
    nothing_comes(&mut subscriptions[3]).await;
    for pool in pools {
        assert_eq!(depth(&broker, pool).await, 0);
    }
}

/// The most urgent waiting message comes first; with equal priority, the one that was published
/// first.
pub async fn urgent_first(factory: &dyn BrokerFactory) {
    let broker = factory.open(PLENTY).await;
    let sent: Vec<Message> = (0..60).map(|number| message(POOL, u8::try_from(number * 7 % 10).unwrap())).collect();
    for batch in sent.chunks(13) {
        publish(&broker, batch.to_vec()).await;
    }
    let mut expected = sent;
    expected.sort_by_key(|sent| std::cmp::Reverse(sent.priority));
    let mut subscription = subscribe(&broker, POOL, 1).await;
    for (number, sent) in expected.iter().enumerate() {
        let delivery = next(&mut subscription).await;
        assert_eq!(&delivery.message, sent, "delivery number {number}");
        delivery.ack();
    }

    // With one delivery at a time, an urgent message overtakes those that were published before it.
    let (low, middle, high) = (message(POOL, 1), message(POOL, 4), message(POOL, 9));
    publish(&broker, vec![low.clone(), low.clone()]).await;
    let delivery = next(&mut subscription).await;
    publish(&broker, vec![middle.clone()]).await;
    publish(&broker, vec![high.clone()]).await;
    delivery.ack();
    for expected in [high, middle, low] {
        let delivery = next(&mut subscription).await;
        assert_eq!(delivery.message, expected);
        delivery.ack();
    }
}

/// A `recv` that is given up at any moment loses no message and holds none back.
pub async fn a_dropped_recv_loses_nothing(factory: &dyn BrokerFactory) {
    let broker = factory.open(PLENTY).await;
    let sent: Vec<Message> = (0..500).map(|_| message(POOL, 5)).collect();
    let publisher = tokio::spawn({
        let (broker, sent) = (Arc::clone(&broker), sent.clone());
        async move {
            for one in sent {
                publish(&broker, vec![one]).await;
                tokio::task::yield_now().await;
            }
        }
    });
    let mut subscription = subscribe(&broker, POOL, 3).await;
    let mut got = Vec::new();
    let consume = async {
        let mut turns = 0_usize;
        while got.len() < sent.len() {
            turns += 1;
            let patience = async {
                for _ in 0..turns % 3 {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                delivery = subscription.recv() => {
                    let delivery = delivery.expect("the broker is open");
                    got.push(delivery.message.task_id);
                    delivery.ack();
                }
                () = patience => tokio::task::yield_now().await,
            }
        }
    };
    timeout(SOON, consume).await.expect("all messages arrive");
    publisher.await.expect("the publisher lives");
    assert_eq!(got, sent.iter().map(|sent| sent.task_id).collect::<Vec<_>>(), "in order, each once");
}

/// A publish or a returned delivery wakes a waiting subscriber, even if another one waited too and
/// went away.
pub async fn a_wake_up_is_never_lost(factory: &dyn BrokerFactory) {
    let broker = factory.open(PLENTY).await;
    let mut hasty = subscribe(&broker, POOL, 1).await;
    let mut patient = subscribe(&broker, POOL, 1).await;
    for round in 0..300 {
        let sent = message(POOL, 5);
        let waiting = tokio::spawn(async move {
            let delivery = next(&mut patient).await;
            (patient, delivery)
        });
        let publishing = tokio::spawn({
            let (broker, sent) = (Arc::clone(&broker), sent.clone());
            async move { publish(&broker, vec![sent]).await }
        });
        // The hasty subscriber waits only for a moment, and may be the one that is woken. It drops
        // its delivery.
        for _ in 0..round % 5 {
            tokio::select! {
                biased;
                delivery = hasty.recv() => drop(delivery),
                () = tokio::task::yield_now() => {}
            }
        }
        publishing.await.expect("the publisher lives");
        let (back, delivery) = waiting.await.expect("the patient one gets it in the end");
        assert_eq!(delivery.message, sent);
        delivery.ack();
        patient = back;
    }

    let held = {
        publish(&broker, vec![message(POOL, 5)]).await;
        next(&mut hasty).await
    };
    let waiting = tokio::spawn(async move { next(&mut patient).await.message.task_id });
    let given_back = held.message.task_id;
    drop(hasty);
    drop(held);
    assert_eq!(waiting.await.expect("the subscriber lives"), given_back);
}

/// A batch wakes one subscriber for each of its messages, and none of other pools instead.
pub async fn a_batch_wakes_as_many_as_it_can_feed(factory: &dyn BrokerFactory) {
    let broker = factory.open(PLENTY).await;
    for _ in 0..20 {
        let mut waiting = JoinSet::new();
        for pool in ["other", POOL, "other", POOL, POOL, POOL] {
            let mut subscription = subscribe(&broker, pool, 1).await;
            waiting.spawn(async move {
                let delivery = next(&mut subscription).await;
                (subscription, delivery)
            });
            // Lets the subscriber begin to wait.
            tokio::task::yield_now().await;
        }
        publish(&broker, (0..4).map(|_| message(POOL, 5)).collect()).await;
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(waiting.join_next().await.expect("six wait").expect("the subscriber lives"));
        }
        assert!(held.iter().all(|(_, delivery)| delivery.message.pool == POOL));
        publish(&broker, (0..2).map(|_| message("other", 5)).collect()).await;
        for (_, delivery) in waiting.join_all().await.into_iter().chain(held) {
            delivery.ack();
        }
    }
}
