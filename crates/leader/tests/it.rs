//! The leader's loops on the real embedded store, with a clock that is moved by hand.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps nothing")]

use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::{Clock, ManualClock};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::LaneId;
use punctual_core::state::{By, Event, State, transition};
use punctual_core::store::{Claim, Inserted, Store, Taker};
use punctual_core::task::Task;
use punctual_core::trail::Actor;
use punctual_core::workers::Registry;
use punctual_leader::reaper::{Config, Reaper, Report};
use punctual_store::sqlite::{Options, SqliteStore};
use punctual_testkit::fixtures::{START, TENANT, TaskBuilder, at, task};
use tempfile::TempDir;

const NODE: NodeId = NodeId::new(1);
const DEAD: NodeId = NodeId::new(2);

struct Bench {
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
    reaper: Reaper,
    _directory: TempDir,
}

impl Bench {
    fn new(alone: bool) -> Self {
        let directory = TempDir::new().unwrap();
        let clock = Arc::new(ManualClock::new(START));
        let store = SqliteStore::open(directory.path(), Arc::clone(&clock) as Arc<dyn Clock>, NODE, Options::default());
        let store = Arc::new(store.unwrap());
        let config =
            Config { interval: Duration::from_secs(1), lost_after: Duration::from_mins(1), poison_after: 3, alone };
        let reaper =
            Reaper::new(Arc::clone(&store) as _, Arc::clone(&store) as _, Arc::clone(&clock) as _, NODE, config);
        Self { store, clock, reaper, _directory: directory }
    }

    async fn submit(&self, task: TaskBuilder) -> Task {
        match self.store.insert(vec![task.build()]).await.unwrap().remove(0) {
            Inserted::Created(task) => task,
            other => panic!("{other:?}"),
        }
    }

    async fn claim(&self, lane: LaneId, taker: Taker) -> Task {
        let claim = Claim { lanes: vec![(lane, 1)], limit: 1, taker };
        self.store.claim(vec![claim]).await.unwrap().remove(0).tasks.remove(0)
    }

    async fn lease(&self, lane: LaneId) -> Task {
        self.claim(lane, Taker::Worker { name: "w".into(), lease_millis: 10_000 }).await
    }

    async fn task(&self, id: TaskId) -> Task {
        self.store.get(TENANT, vec![id]).await.unwrap().remove(0).unwrap()
    }

    async fn reap(&self) -> Report {
        self.reaper.run_once().await.unwrap()
    }
}

fn last_error(task: &Task) -> String {
    task.trail.last_error().unwrap().1.code.into_owned()
}

#[tokio::test]
async fn a_lost_worker_costs_an_attempt_and_the_third_makes_poison() {
    let bench = Bench::new(true);
    let task = bench.submit(task()).await;
    for lost in 1..=3 {
        bench.lease(task.lane.id).await;
        bench.clock.advance_millis(9_999);
        assert_eq!(bench.reap().await, Report::default(), "the lease still runs");
        bench.clock.advance_millis(1);
        assert_eq!(bench.reap().await.reaped, 1);
        let now = bench.task(task.id).await;
        if lost < 3 {
            assert_eq!(
                (now.state(), now.retry_count(), last_error(&now).as_str()),
                (State::Pending, lost, "worker_lost")
            );
        } else {
            assert_eq!((now.state(), last_error(&now).as_str()), (State::DeadLettered, "poisoned"));
        }
        bench.clock.advance_millis(1_000);
    }
}

#[tokio::test]
async fn a_run_past_its_timeout_is_timed_out_and_is_no_poison() {
    let bench = Bench::new(true);
    let task = bench.submit(task().timeout_millis(5_000)).await;
    for _ in 0..3 {
        bench.lease(task.lane.id).await;
        bench.clock.advance_millis(5_000);
        assert_eq!(bench.reap().await.reaped, 1);
        let now = bench.task(task.id).await;
        assert_eq!((now.state(), last_error(&now).as_str()), (State::Pending, "timeout"));
        bench.clock.advance_millis(1_000);
    }
}

#[tokio::test]
async fn what_was_queued_and_never_started_goes_back_uncounted() {
    let bench = Bench::new(true);
    let task = bench.submit(task().push("http://x.example:80")).await;
    bench.claim(task.lane.id, Taker::Dispatch { visibility_millis: 10_000 }).await;
    bench.clock.advance_millis(10_000);
    assert_eq!(bench.reap().await.reaped, 1);
    let now = bench.task(task.id).await;
    assert_eq!((now.state(), now.position.attempts), (State::Pending, 0));
}

#[tokio::test]
async fn a_waiting_task_that_expires_is_failed() {
    let bench = Bench::new(true);
    let task = bench.submit(task().due(at(1_000)).expires_at(at(5_000))).await;
    bench.clock.advance_millis(4_999);
    assert_eq!(bench.reap().await, Report::default());
    bench.clock.advance_millis(1);
    assert_eq!(bench.reap().await.reaped, 1);
    let now = bench.task(task.id).await;
    assert_eq!((now.state(), last_error(&now).as_str()), (State::Failed, "expired"));
}

#[tokio::test]
async fn a_cancelled_run_whose_worker_is_lost_is_cancelled() {
    let bench = Bench::new(true);
    let task = bench.submit(task()).await;
    let leased = bench.lease(task.lane.id).await;
    let by = By { now: START, node: NODE, actor: Actor::Client };
    let cancel = transition(&leased.position, Event::Cancel, &by).unwrap();
    bench.store.apply(vec![(task.id, cancel)]).await.unwrap();
    bench.clock.advance_millis(10_000);
    assert_eq!(bench.reap().await.reaped, 1);
    assert_eq!(bench.task(task.id).await.state(), State::Cancelled);
}

#[tokio::test]
async fn silent_nodes_are_buried_at_once_by_whoever_is_alone_and_later_by_the_others() {
    for (alone, buried) in [(true, 1), (false, 0)] {
        let bench = Bench::new(alone);
        bench.store.saw_node(NODE).await.unwrap();
        bench.store.saw_node(DEAD).await.unwrap();
        assert_eq!(bench.reap().await.buried, buried);
        bench.store.saw_node(DEAD).await.unwrap();
        bench.clock.advance_millis(60_001);
        bench.store.saw_node(NODE).await.unwrap();
        assert_eq!(bench.reap().await.buried, 1);
        assert_eq!(bench.reap().await.buried, 0);
    }
}
