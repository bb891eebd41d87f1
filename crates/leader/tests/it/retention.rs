//! Retention on the real embedded store, with a manual clock.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use punctual_core::clock::{Clock, ManualClock};
use punctual_core::forecast::Minute;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::insight::Insight;
use punctual_core::registry::{Registry, WorkerPresence};
use punctual_core::state::{By, Event, transition};
use punctual_core::store::{Claim, Claimant, Inserted, Store, StoreError};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;
use punctual_core::upkeep::{Prunable, Pruned, Resolved, Upkeep};
use punctual_leader::pruner::{Config, Pruner, Report};
use punctual_store::sqlite::{Options, SqliteStore};
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{START, TENANT, TaskBuilder, task};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

const NODE: NodeId = NodeId::new(1);
const DAY: Duration = Duration::from_hours(24);
const SOON: Duration = Duration::from_secs(20);

struct Harness {
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
    _directory: TempDir,
}

impl Harness {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let clock = Arc::new(ManualClock::new(START));
        let store = SqliteStore::open(directory.path(), Arc::clone(&clock) as Arc<dyn Clock>, NODE, Options::default());
        Self { store: Arc::new(store.unwrap()), clock, _directory: directory }
    }

    fn pruner(&self, config: Config) -> Pruner {
        Pruner::new(Arc::clone(&self.store) as _, Arc::clone(&self.clock) as _, config)
    }

    fn pass(&self, time: Duration) {
        self.clock.advance_millis(i64::try_from(time.as_millis()).unwrap());
    }

    async fn submit(&self, task: TaskBuilder) -> Inserted {
        self.store.insert(vec![task.created_at(self.clock.now()).build()]).await.unwrap().remove(0)
    }

    async fn done(&self, task: TaskBuilder) -> Task {
        let Inserted::Created(stored) = self.submit(task).await else { panic!("it is new") };
        let claimant = Claimant::Worker { name: "w".into(), lease_millis: 10_000, due_by: None };
        let claim = Claim { lanes: vec![(stored.lane.id, 1)], limit: 1, claimant };
        let running = self.store.claim(vec![claim]).await.unwrap().remove(0).tasks.remove(0);
        let by = By { now: self.clock.now(), node: NODE, actor: Actor::Client };
        let event = Event::Complete { result: None, http_status: None, dropped: None };
        let change = transition(&running.position, event, &by).unwrap();
        self.store.apply(vec![(running.id, change)]).await.unwrap();
        running
    }

    async fn is_there(&self, id: TaskId) -> bool {
        self.store.get(TENANT, vec![id]).await.unwrap().remove(0).is_some()
    }
}

fn config(history: Option<Duration>, keys: Option<Duration>) -> Config {
    let hour = Duration::from_hours(1);
    Config { history, keys, workers: Some(DAY), interval: hour, keys_interval: hour, lanes_interval: Duration::ZERO }
}

#[tokio::test]
async fn old_data_is_removed_by_the_clock_of_the_store() {
    let harness = Harness::new();
    let pruner = harness.pruner(config(Some(90 * DAY), Some(30 * DAY)));
    let old = harness.done(task().key("k", 1)).await;
    harness.pass(DAY);
    let young = harness.done(task()).await;
    assert_eq!(pruner.run_once().await.unwrap(), Report::default());
    harness.pass(29 * DAY);
    let pruner = harness.pruner(config(Some(90 * DAY), Some(30 * DAY)));
    assert_eq!(pruner.run_once().await.unwrap(), Report::default(), "a key is kept for exactly thirty days");
    harness.pass(Duration::from_millis(1));
    let pruner = harness.pruner(config(Some(90 * DAY), Some(30 * DAY)));
    assert_eq!(pruner.run_once().await.unwrap(), Report { keys: 1, ..Report::default() });
    assert!(matches!(harness.submit(task().key("k", 2)).await, Inserted::Created(_)));
    harness.pass(60 * DAY);
    assert_eq!(pruner.run_once().await.unwrap(), Report { tasks: 1, ..Report::default() });
    assert!(!harness.is_there(old.id).await && harness.is_there(young.id).await);
}

#[tokio::test]
async fn data_without_a_retention_is_kept() {
    let harness = Harness::new();
    let old = harness.done(task().key("k", 1)).await;
    harness.pass(100_000 * DAY);
    assert_eq!(harness.pruner(config(None, None)).run_once().await.unwrap(), Report::default());
    assert!(harness.is_there(old.id).await);
    assert!(matches!(harness.submit(task().key("k", 1)).await, Inserted::Replayed(task) if task.id == old.id));
}

#[tokio::test]
async fn a_worker_unseen_for_long_is_no_longer_listed() {
    let harness = Harness::new();
    let seen = |name: &str, at| WorkerPresence {
        tenant: TENANT.into(),
        name: name.into(),
        queues: vec!["default".into()],
        kinds: Vec::new(),
        first_seen_at: START,
        last_seen_at: at,
    };
    harness.store.record_workers(vec![seen("gone", START), seen("there", START.plus_millis(1))]).await.unwrap();
    harness.pass(DAY);
    let pruner = harness.pruner(config(None, None));
    assert_eq!(pruner.run_once().await.unwrap(), Report::default());
    harness.pass(Duration::from_millis(1));
    assert_eq!(pruner.run_once().await.unwrap(), Report { workers: 1, ..Report::default() });
    let left = harness.store.workers(TENANT, None, 10).await.unwrap();
    assert_eq!(left.iter().map(|worker| worker.name.as_str()).collect::<Vec<_>>(), ["there"]);
}

#[tokio::test]
async fn past_minutes_of_the_forecast_are_always_removed() {
    let harness = Harness::new();
    for minute in 1..=250 {
        harness.submit(task().due(START.plus_millis(minute * 60_000))).await;
    }
    harness.pass(Duration::from_mins(200));
    let pruner = harness.pruner(config(None, None));
    assert_eq!(pruner.run_once().await.unwrap(), Report { minutes: 100, more: true, ..Report::default() });
    assert_eq!(pruner.run_once().await.unwrap(), Report { minutes: 99, ..Report::default() });
    assert_eq!(pruner.run_once().await.unwrap(), Report::default(), "the current minute stays");
    let next = Minute::of(harness.clock.now()).plus(1);
    assert_eq!(harness.store.waiting(TENANT, next, next.plus(1_000)).await.unwrap().len(), 50);
}

#[tokio::test]
async fn lanes_go_with_the_history_that_names_them() {
    let harness = Harness::new();
    let pruner = harness.pruner(config(Some(DAY), None));
    harness.done(task().queue("empty")).await;
    harness.submit(task().queue("waiting")).await;
    harness.pass(DAY);
    for _ in 0..3 {
        assert_eq!(pruner.run_once().await.unwrap(), Report::default());
    }
    harness.pass(Duration::from_millis(1));
    assert_eq!(pruner.run_once().await.unwrap(), Report { tasks: 1, lanes: 1, ..Report::default() });
    assert_eq!(pruner.run_once().await.unwrap(), Report::default());
}

#[tokio::test]
async fn the_pruner_removes_more_than_one_step_holds() {
    let harness = Harness::new();
    let mut tasks = Vec::new();
    for number in 0..250 {
        tasks.push(harness.done(task().key(&number.to_string(), 1)).await.id);
    }
    harness.pass(2 * DAY);
    let stop = CancellationToken::new();
    let pruner = harness.pruner(config(Some(DAY), Some(DAY)));
    let running = tokio::spawn({
        let stop = stop.clone();
        async move { pruner.run(stop).await }
    });
    eventually("everything is gone", SOON, async || {
        let left = harness.store.get(TENANT, tasks.clone()).await.unwrap().into_iter().flatten().count();
        if left == 0 { Ok(()) } else { Err(left.to_string()) }
    })
    .await;
    for number in [0, 249] {
        let key = number.to_string();
        eventually("the key is free", SOON, async || match harness.submit(task().key(&key, 2)).await {
            Inserted::KeyReused(_) => Err(key.clone()),
            _ => Ok(()),
        })
        .await;
    }
    stop.cancel();
    tokio::time::timeout(SOON, running).await.expect("the pruner ends soon").unwrap();
}

/// Counts the steps. Every scan takes two.
#[derive(Default)]
struct Counting(Mutex<[usize; 6]>);

impl Counting {
    fn step(&self, kind: usize) -> Pruned {
        let mut steps = self.0.lock();
        steps[kind] += 1;
        Pruned { removed: 1, more: steps[kind] % 2 == 1 }
    }
}

#[async_trait]
impl Upkeep for Counting {
    async fn prune(&self, what: Prunable, _: Timestamp, _: usize) -> Result<Pruned, StoreError> {
        let kinds = [
            Prunable::History,
            Prunable::Keys,
            Prunable::Ledger,
            Prunable::Forecast,
            Prunable::Lanes,
            Prunable::Nonces,
        ];
        Ok(self.step(kinds.iter().position(|kind| *kind == what).expect("nothing else is configured")))
    }

    async fn resolve(&self) -> Result<Resolved, StoreError> {
        unreachable!("a pruner resolves nothing")
    }

    async fn review(&self) -> Result<(), StoreError> {
        unreachable!("a pruner resolves nothing")
    }

    async fn wait_for_notes(&self) {
        unreachable!("a pruner resolves nothing")
    }
}

#[tokio::test(start_paused = true)]
async fn keys_and_lanes_are_scanned_less_often() {
    let counting = Arc::new(Counting::default());
    let clock = Arc::new(ManualClock::new(START));
    let minute = Duration::from_mins(1);
    let (history, keys, keys_interval, lanes_interval) = (Some(DAY), Some(DAY), 10 * minute, 5 * minute);
    let config = Config { history, keys, workers: None, interval: minute, keys_interval, lanes_interval };
    let pruner = Pruner::new(Arc::clone(&counting) as _, clock, config);
    // The paused clock jumps from timer to timer, up to this instant: between the last pass of the
    // first ten minutes and the next.
    let ended = tokio::time::timeout(9 * minute + minute / 2, pruner.run(CancellationToken::new())).await;
    assert!(ended.is_err(), "it runs until it is cancelled");
    assert_eq!(
        *counting.0.lock(),
        [20, 2, 20, 20, 4, 20],
        "ten scans of everything, one of the keys, two of the lanes"
    );
}
