//! The sweep of many lanes: it holds nothing up, and costs little if nobody polls them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use punctual_core::store::Store;
use punctual_scheduler::polls::PollFilter;
use punctual_testkit::fixtures::task;
use tokio_util::sync::CancellationToken;

use crate::harness::{Harness, poll_once, request};
use crate::spy::PAGE_TIME;

/// The time is made up too: it passes only while everybody waits.
#[tokio::test(start_paused = true)]
async fn many_lanes_are_swept_a_twentieth_of_the_time() {
    const PAGES: u32 = 20;
    const LONG: Duration = Duration::from_mins(1);
    let harness = Harness::with(|config| config.sweep_interval = Duration::from_secs(1));
    let (spy, stop) = (Arc::clone(&harness.spy), CancellationToken::new());
    spy.make_up_lanes(i64::from(PAGES) * 1_000);
    let dispatcher = tokio::spawn(harness.dispatcher.run(stop.clone()));
    tokio::time::sleep(PAGE_TIME * (PAGES + 2)).await;
    let first = u32::try_from(spy.pages.load(Relaxed)).unwrap();
    assert!(first > PAGES, "the first sweep does not pause: {first} pages");
    tokio::time::sleep(LONG).await;
    let later = u32::try_from(spy.pages.load(Relaxed)).unwrap() - first;
    let (busy, most) = (PAGE_TIME * later, LONG / 20);
    assert!(busy <= most + PAGE_TIME && busy >= most / 2, "{busy:?} of {LONG:?}");
    stop.cancel();
    dispatcher.await.unwrap();
}

#[tokio::test]
async fn a_pass_reads_one_page_of_lanes() {
    let mut harness = Harness::with(|config| config.sweep_interval = Duration::ZERO);
    harness.spy.make_up_lanes(3_000);
    harness.dispatcher.run_once().await.unwrap();
    assert_eq!(harness.spy.pages.load(Relaxed), 1);
}

/// It does not wait, but the sweep has yet to find the task that was stored before.
#[tokio::test]
async fn a_poll_that_does_not_wait_waits_for_the_first_sweep() {
    let mut harness = Harness::new();
    // Past the notifying store: nobody gives a hint.
    let tasks = (0..2_500).map(|number| task().queue(&format!("q{number}")).build()).collect();
    Store::insert(&*harness.sqlite, tasks).await.unwrap();
    assert_eq!(harness.lease("q2499", 1).await.len(), 1);
}

/// Every page could begin a new sweep; then the last lanes would never be read.
#[tokio::test(start_paused = true)]
async fn a_sweep_asked_for_again_and_again_reads_every_lane() {
    let mut harness = Harness::new();
    harness.spy.make_up_lanes(5_000);
    for _ in 0..20 {
        harness.hints.request_sweep();
        harness.dispatcher.run_once().await.unwrap();
    }
    assert_eq!(harness.spy.farthest.load(Relaxed), 4_999);
    let polled = harness.polls.poll(request(PollFilter::Queues(vec!["q".into()]), 1, Duration::ZERO));
    let mut polled = Box::pin(polled);
    assert!(poll_once(&mut polled).is_none());
    harness.hints.request_sweep();
    harness.dispatcher.run_once().await.unwrap();
    assert!(poll_once(&mut polled).is_some(), "a poll that does not wait is not answered");
}

#[tokio::test]
async fn a_sweep_that_fails_is_not_repeated_at_once() {
    let mut harness = Harness::new();
    harness.spy.fails_pages.store(true, Relaxed);
    harness.hints.request_sweep();
    harness.dispatcher.run_once().await.unwrap_err();
    assert!(!harness.dispatcher.run_once().await.unwrap().more, "the next pass is due at once");
    assert_eq!(harness.spy.pages.load(Relaxed), 1);
}
