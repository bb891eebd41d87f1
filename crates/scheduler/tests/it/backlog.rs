//! The backlog is dispatched as tokens allow, and current work goes first.

use std::time::Duration;

use punctual_core::store::Claimant;
use punctual_testkit::fixtures::{at, task};
use tokio_util::sync::CancellationToken;

use crate::harness::Harness;

const TARGET: &str = "http://a.example:80";

#[tokio::test(start_paused = true)]
async fn current_work_goes_first_and_the_backlog_as_tokens_allow() {
    let mut harness = Harness::of_many(|_| {});
    let found = harness.submit_all((0..50).map(|n| task().push(TARGET).due(at(n - 10_000)))).await;
    harness.owner.run_once().await.unwrap();
    let current = harness.submit_all((0..5).map(|_| task().push(TARGET))).await;
    harness.passes().await;
    // Submitted after the backlog, dispatched first.
    let published = harness.published().await;
    assert_eq!(published[..5], current);
    assert_eq!(published[5..], found[..20], "a second's worth");
    harness.passes().await;
    assert!(harness.published().await.is_empty(), "no tokens, no backlog");
    tokio::time::advance(Duration::from_millis(500)).await;
    let late = harness.submit_all([task().push(TARGET)]).await;
    harness.passes().await;
    assert_eq!(harness.published().await, [&late[..], &found[20..30]].concat());
    tokio::time::advance(Duration::from_secs(10)).await;
    harness.passes().await;
    assert_eq!(harness.published().await, found[30..]);
    // The backlog is empty: the lane is like any other.
    harness.submit_all([task().push(TARGET)]).await;
    harness.passes().await;
    assert_eq!(harness.published().await.len(), 1);
    let claims = harness.spy.claims.lock().unwrap();
    let Claimant::Dispatch { from, .. } = &claims.last().unwrap().claimant else { panic!("not a dispatch") };
    assert_eq!(*from, None);
}

#[tokio::test(start_paused = true)]
async fn tasks_that_come_due_later_are_no_backlog() {
    let mut harness = Harness::of_many(|_| {});
    harness.owner.run_once().await.unwrap();
    harness.submit_all((0..100).map(|_| task().push(TARGET).due(at(1_000)))).await;
    harness.passes().await;
    // Late, as a herd is on a busy machine.
    harness.clock.advance_millis(10_000);
    harness.passes().await;
    assert_eq!(harness.published().await.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_everything_is_dispatched_at_once() {
    let mut harness = Harness::of_many(|config| config.backlog_per_second = 0);
    harness.submit_all((0..100).map(|_| task().push(TARGET).due(at(-10_000)))).await;
    harness.owner.run_once().await.unwrap();
    harness.passes().await;
    assert_eq!(harness.published().await.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn pull_workers_are_not_limited() {
    let mut harness = Harness::of_many(|_| {});
    harness.submit_all((0..100).map(|_| task().due(at(-10_000)))).await;
    harness.owner.run_once().await.unwrap();
    assert_eq!(harness.lease("default", 100).await.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn many_lanes_share_the_tokens_and_hold_up_no_current_one() {
    let mut harness = Harness::of_many(|config| config.claim_batch = 50);
    let of_queue = |n: i64| task().queue(&format!("q{}", n % 30)).push(TARGET).due(at(n - 10_000));
    let found = harness.submit_all((0..90).map(of_queue)).await;
    harness.owner.run_once().await.unwrap();
    let current = harness.submit(task().queue("current").push(TARGET)).await;
    harness.dispatcher.run_once().await.unwrap();
    let first = harness.published().await;
    assert_eq!(first[0], current, "in the very first pass");
    let mut published = first.len() - 1;
    while published < found.len() {
        harness.passes().await;
        let more = harness.published().await.len();
        assert!(more <= 20, "{more}");
        published += more;
        tokio::time::advance(Duration::from_millis(500)).await;
    }
    assert_eq!(published, found.len());
}

#[tokio::test]
async fn the_dispatcher_sleeps_until_there_are_tokens() {
    let harness = Harness::of_many(|config| config.backlog_per_second = 40);
    harness.submit_all((0..80).map(|_| task().push(TARGET).due(at(-10_000)))).await;
    harness.owner.run_once().await.unwrap();
    let (stop, spy, broker) = (CancellationToken::new(), harness.spy, harness.broker);
    let begun = std::time::Instant::now();
    let dispatcher = tokio::spawn(harness.dispatcher.run(stop.clone()));
    punctual_testkit::eventually::eventually("all is published", Duration::from_secs(20), async || {
        use punctual_core::broker::{Broker, WEBHOOK_POOL};
        match broker.depth(WEBHOOK_POOL).await.unwrap() {
            80 => Ok(()),
            depth => Err(format!("{depth}")),
        }
    })
    .await;
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    stop.cancel();
    dispatcher.await.unwrap();
    // Twenty portions, one for the lane's current part, and a few for other wake-ups.
    let claims = spy.claims.lock().unwrap().len();
    assert!(claims < 60, "{claims} claims");
}
