//! Queues on several nodes: limits and pauses hold on nodes that were not notified of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use punctual_core::clock::ManualClock;
use punctual_core::ids::NodeId;
use punctual_core::queues::{Pause, QueueChange, Queues, RateLimit, Settings};
use punctual_core::store::{Inserted, Store};
use punctual_core::task::Task;
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{START, TENANT, task};
use tokio::task::JoinSet;

use super::super::PostgresStore;
use super::{Fixture, complete, insert, lease, open, open_at};

const QUEUE: &str = "mail";

async fn put(store: &PostgresStore, settings: Settings) {
    store.change_queue(TENANT, QUEUE, QueueChange::Put(settings, None)).await.unwrap();
}

fn pause() -> QueueChange {
    QueueChange::Pause(Pause { since: START, by: "operator".to_owned(), reason: None, until: None })
}

async fn waiting(store: &PostgresStore) -> u64 {
    store.queue(TENANT, QUEUE).await.unwrap().unwrap().live.pending
}

async fn some(store: &PostgresStore, count: usize) -> Task {
    let first = insert(store, task().queue(QUEUE)).await;
    store.insert(task().queue(QUEUE).times(count - 1)).await.unwrap();
    first
}

/// Three nodes claim and complete at once; two were not notified of the limit. Another session
/// counts the held rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_limit_holds_for_nodes_that_were_not_notified() {
    let fixture = Fixture::open().await;
    let first = some(&fixture.store, 300).await;
    let mut stores = vec![fixture.store.clone()];
    for number in 0..2 {
        stores.push(open(&fixture.url, NodeId::new(100 + number)).await);
    }
    put(&fixture.store, Settings { max_concurrency: Some(3), ..Settings::default() }).await;
    let mut nodes = JoinSet::new();
    for store in stores.iter().flat_map(|store| [store.clone(), store.clone()]) {
        let first = first.clone();
        nodes.spawn(async move {
            while waiting(&store).await > 0 {
                for task in lease(&store, &first, 2).await {
                    // Other nodes claim meanwhile.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    assert!(complete(&store, &task).await);
                }
            }
        });
    }
    let watcher = punctual_testkit::postgres::connect(&fixture.url).await;
    let held = watcher.prepare("SELECT count(*) FROM punctual.tasks WHERE state IN (2, 3)").await.unwrap();
    let (mut most, mut ended) = (0, 0);
    while ended < 6 {
        most = most.max(watcher.query_one(&held, &[]).await.unwrap().get::<_, i64>(0));
        while let Some(node) = nodes.try_join_next() {
            node.unwrap();
            ended += 1;
        }
    }
    assert_eq!(most, 3, "held at once");
    fixture.assert_counts().await;
}

/// Three nodes claim at once, again and again. Together they take the burst, and then the tokens
/// that were added.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_take_from_one_bucket() {
    let fixture = Fixture::open().await;
    let first = some(&fixture.store, 400).await;
    let rate_limit = Some(RateLimit { per_second: 100.0, burst: 10 });
    put(&fixture.store, Settings { rate_limit, ..Settings::default() }).await;
    let clock = Arc::new(ManualClock::new(START));
    let mut stores = Vec::new();
    for number in 0..3 {
        stores.push(open_at(&fixture.url, NodeId::new(100 + number), &clock).await);
    }
    let mut taken = Vec::new();
    for _ in 0..30 {
        let mut claims = JoinSet::new();
        for store in stores.iter().flat_map(|store| [store.clone(), store.clone()]) {
            let first = first.clone();
            claims.spawn(async move { lease(&store, &first, 20).await.len() });
        }
        taken.push(claims.join_all().await.into_iter().sum::<usize>());
        clock.advance_millis(50);
    }
    assert_eq!(taken[0], 10);
    assert!(taken[1..].iter().all(|count| *count == 5), "{taken:?}");
}

/// Another node keeps claiming. Once the pause is answered, it takes nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_pause_holds_for_claims_of_other_nodes() {
    let fixture = Fixture::open().await;
    let other = open(&fixture.url, NodeId::new(100)).await;
    for _ in 0..10 {
        let first = some(&fixture.store, 1_000).await;
        let stop = Arc::new(AtomicBool::new(false));
        let mut claimers = JoinSet::new();
        for _ in 0..4 {
            let (store, first, stop) = (other.clone(), first.clone(), Arc::clone(&stop));
            claimers.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    lease(&store, &first, 3).await;
                }
            });
        }
        let before = waiting(&fixture.store).await;
        eventually("some are taken", Duration::from_secs(20), async || {
            let now = waiting(&fixture.store).await;
            if now < before { Ok(()) } else { Err(format!("{now}")) }
        })
        .await;
        fixture.store.change_queue(TENANT, QUEUE, pause()).await.unwrap();
        let then = waiting(&fixture.store).await;
        for _ in 0..20 {
            assert_eq!(waiting(&fixture.store).await, then);
        }
        stop.store(true, Ordering::SeqCst);
        claimers.join_all().await;
        assert_eq!(waiting(&fixture.store).await, then, "a task was taken after the pause was answered");
        fixture.store.change_queue(TENANT, QUEUE, QueueChange::Resume).await.unwrap();
        while !lease(&other, &first, 500).await.is_empty() {}
    }
}

#[tokio::test]
async fn other_nodes_are_notified_of_changes_and_free_places() {
    let fixture = Fixture::open().await;
    let first = some(&fixture.store, 5).await;
    let other = open(&fixture.url, NodeId::new(100)).await;
    let notified_of = async |what: &str| {
        let heard = tokio::time::timeout(Duration::from_secs(20), other.wait_for_limit_changes()).await;
        heard.unwrap_or_else(|_| panic!("no notification of {what}"))
    };
    // The start of listening counts as a change: earlier ones were missed.
    assert!(notified_of("the start").await.changed);
    put(&fixture.store, Settings { max_concurrency: Some(1), ..Settings::default() }).await;
    assert!(notified_of("a setting").await.changed);
    let taken = lease(&fixture.store, &first, 1).await;
    assert_eq!(lease(&other, &first, 1).await.len(), 0);
    complete(&fixture.store, &taken[0]).await;
    let freed = loop {
        let heard = notified_of("a place").await;
        if !heard.freed.is_empty() {
            break heard.freed;
        }
    };
    assert_eq!(freed, [(TENANT.to_owned(), QUEUE.to_owned())]);
    assert_eq!(lease(&other, &first, 1).await.len(), 1);
}

/// The change gives up after a while and has changed nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_change_waits_for_a_claim_under_way() {
    let fixture = Fixture::open().await;
    let first = some(&fixture.store, 5).await;
    put(&fixture.store, Settings { max_concurrency: Some(2), ..Settings::default() }).await;
    let other = open(&fixture.url, NodeId::new(100)).await;
    let blocker = punctual_testkit::postgres::connect(&fixture.url).await;
    blocker.batch_execute("BEGIN; SELECT 1 FROM punctual.gates FOR UPDATE").await.unwrap();
    let claim = tokio::spawn({
        let first = first.clone();
        async move { lease(&other, &first, 5).await }
    });
    eventually("the claim is under way", Duration::from_secs(20), async || {
        let held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted";
        let held = fixture.number(held).await;
        if held == 1 { Ok(()) } else { Err(format!("{held} shares are held")) }
    })
    .await;
    let begun = Instant::now();
    let refused = fixture.store.change_queue(TENANT, QUEUE, pause()).await;
    assert!(refused.is_err_and(|error| error.is_retryable()), "it did not wait");
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(fixture.store.queue(TENANT, QUEUE).await.unwrap().unwrap().queue.pause, None);
    blocker.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(claim.await.unwrap().len(), 2);
    fixture.store.change_queue(TENANT, QUEUE, pause()).await.unwrap();
    assert_eq!(lease(&fixture.store, &first, 5).await.len(), 0);
}

#[tokio::test]
async fn a_queue_without_limits_has_no_gate() {
    let fixture = Fixture::open().await;
    let gates = async || fixture.number("SELECT count(*) FROM gates").await;
    put(&fixture.store, Settings { dispatch_jitter_millis: 5, timeout_millis: Some(1), ..Settings::default() }).await;
    assert_eq!(gates().await, 0);
    let rate_limit = Some(RateLimit { per_second: 1.0, burst: 1 });
    for settings in [
        Settings { max_concurrency: Some(1), ..Settings::default() },
        Settings { rate_limit, ..Settings::default() },
        Settings { max_depth: Some(1), ..Settings::default() },
    ] {
        put(&fixture.store, settings).await;
        assert_eq!(gates().await, 1);
    }
    put(&fixture.store, Settings::default()).await;
    assert_eq!(gates().await, 0);
    fixture.store.change_queue(TENANT, QUEUE, pause()).await.unwrap();
    assert_eq!(gates().await, 1);
    fixture.store.change_queue(TENANT, QUEUE, QueueChange::Resume).await.unwrap();
    assert_eq!(gates().await, 0);
}

/// Not even if its insert fails.
#[tokio::test]
async fn a_bounded_submission_leaves_no_lock() {
    let fixture = Fixture::open().await;
    put(&fixture.store, Settings { max_depth: Some(1), ..Settings::default() }).await;
    let locks =
        async || fixture.number("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2").await;
    let answers = fixture.store.insert(task().queue(QUEUE).times(3)).await.unwrap();
    assert!(
        matches!(answers[..], [Inserted::Created(_), Inserted::QueueFull(_), Inserted::QueueFull(_)]),
        "{answers:?}"
    );
    assert_eq!(locks().await, 0);
    fixture
        .sql("ALTER TABLE tasks ADD CONSTRAINT broken CHECK (created_at < 0) NOT VALID; UPDATE gates SET max_depth = 9")
        .await;
    assert!(fixture.store.insert(task().queue(QUEUE).times(2)).await.is_err());
    assert_eq!(locks().await, 0);
    fixture.sql("ALTER TABLE tasks DROP CONSTRAINT broken").await;
    fixture.store.insert(task().queue(QUEUE).times(2)).await.unwrap();
}

/// A node of an older version, which still runs in a rolling upgrade, counts for lanes only.
#[tokio::test]
async fn upkeep_corrects_the_counts_of_queues() {
    let fixture = Fixture::open().await;
    some(&fixture.store, 3).await;
    fixture.sql("INSERT INTO queue_counts SELECT tenant, queue, state, 99, 2 FROM queue_counts ORDER BY tenant DESC LIMIT 1").await;
    assert_eq!(waiting(&fixture.store).await, 5);
    fixture.store.upkeep(START).await.unwrap();
    assert_eq!(waiting(&fixture.store).await, 3);
    fixture.assert_counts().await;
}
