//! What a limited queue costs by the number of its lanes, and whom it holds up.
//!
//! ```console
//! $ cargo run --release -p punctual-store --example limited_lanes -- [DIRECTORY | postgres://…] [LANES]
//! ```
//!
//! Fills a queue with tasks for `LANES` webhook targets, limits it, and times a batch and claims in
//! it, and beside the batch the single submissions of another tenant. At the end it takes two steps
//! of the round that looks for empty lanes. A directory that is named is emptied first.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_core::clock::{Clock, SystemClock};
use punctual_core::database::Database;
use punctual_core::ids::NodeId;
use punctual_core::lane::LaneId;
use punctual_core::queues::{QueueChange, Settings};
use punctual_core::store::{Claim, Claimant, Inserted, Store};
use punctual_core::task::NewTask;
use punctual_core::upkeep::Prunable;
use punctual_store::postgres::{self, PostgresStore};
use punctual_store::sqlite::{Options, SqliteStore};
use punctual_testkit::fixtures::task;

const BATCH: usize = 1_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let place = arguments.next();
    let lanes = arguments.next().map_or(30_000, |count| count.parse().expect("LANES is a number"));
    let store = open(place).await;
    let lane = fill(&store, lanes).await;
    let batch = |tenant: &str| task().tenant(tenant).queue("q").due(SystemClock.now()).times(BATCH);
    println!("{lanes} lanes");
    report("batch of 1,000, right after the fill", time(Store::insert(&*store, batch("noisy"))).await);
    report("batch of 1,000, no limit", time(Store::insert(&*store, batch("noisy"))).await);
    report("claim of 1, no limit", claim(&store, lane).await);
    let settings = Settings { max_depth: Some(1 << 29), max_concurrency: Some(1 << 19), ..Settings::default() };
    store.change_queue("noisy", "q", QueueChange::Put(settings, None)).await.expect("a queue can be set");
    let (large, small) = tokio::join!(time(Store::insert(&*store, batch("noisy"))), async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        let mut longest = Duration::ZERO;
        for _ in 0..10 {
            let single: Vec<NewTask> = task().tenant("other").queue("q").due(SystemClock.now()).times(1);
            longest = longest.max(time(Store::insert(&*store, single)).await);
        }
        longest
    });
    report("batch of 1,000, limited", large);
    report("  another tenant's task meanwhile", small);
    report("claim of 1, limited", claim(&store, lane).await);
    report("heads, all", time(async { store.heads(None, SystemClock.now(), usize::MAX).await.map(drop) }).await);
    report("counts", time(async { store.counts().await.map(drop) }).await);
    report("first step of the search for empty lanes", prune(&store).await);
    report("second step of the search for empty lanes", prune(&store).await);
    store.close().await.expect("the store closes");
}

async fn open(place: Option<String>) -> Arc<dyn Database> {
    let node = NodeId::random();
    if let Some(url) = place.as_ref().filter(|place| place.starts_with("postgres")) {
        let database = postgres::Migrator::connect(url).await.expect("the server answers");
        database.up(SystemClock.now()).await.expect("the schema is made");
        let options = postgres::Options { tenant_lanes: u64::MAX, ..postgres::Options::default() };
        let store = PostgresStore::connect(url, Arc::new(SystemClock), node, options).await;
        return Arc::new(store.expect("the store opens"));
    }
    let directory = place.map_or_else(|| std::env::temp_dir().join("punctual-limited-lanes"), PathBuf::from);
    std::fs::remove_dir_all(&directory).ok();
    let options = Options { tenant_lanes: u64::MAX, ..Options::default() };
    let store = SqliteStore::open(&directory, Arc::new(SystemClock), node, options);
    Arc::new(store.expect("the store opens"))
}

/// A task for each of many targets; returns the lane of the first.
async fn fill(store: &Arc<dyn Database>, lanes: usize) -> LaneId {
    let mut first = None;
    for start in (0..lanes).step_by(BATCH) {
        let to = |number: usize| task().tenant("noisy").queue("q").push(&format!("http://host-{number}:80"));
        let batch = (start..lanes.min(start + BATCH)).map(|number| to(number).due(SystemClock.now()).build());
        let inserted = Store::insert(&**store, batch.collect()).await.expect("insert answers");
        if let Some(Inserted::Created(task)) = inserted.first() {
            first.get_or_insert(task.lane.id);
        }
    }
    first.expect("there is a lane")
}

async fn claim(store: &Arc<dyn Database>, lane: LaneId) -> Duration {
    let claimant = Claimant::Worker { name: "w".to_owned(), lease_millis: 60_000, due_by: None };
    let claim = Claim { lanes: vec![(lane, 1)], limit: 1, claimant };
    time(store.claim(vec![claim])).await
}

async fn prune(store: &Arc<dyn Database>) -> Duration {
    time(store.prune(Prunable::Lanes, SystemClock.now(), 100)).await
}

async fn time<T, E: std::fmt::Debug>(call: impl Future<Output = Result<T, E>>) -> Duration {
    let begun = Instant::now();
    call.await.expect("the store answers");
    begun.elapsed()
}

fn report(what: &str, took: Duration) {
    println!("{what:<36} {:>9.1} ms", took.as_secs_f64() * 1_000.0);
}
