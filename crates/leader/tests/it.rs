//! The leader's loops on the real embedded store, with a manual clock.
#![allow(clippy::unwrap_used, reason = "a test fails where it unwraps nothing")]

mod it {
    mod bulk;
    mod cron;
    mod retention;
}

use std::sync::Arc;
use std::time::Duration;

use punctual_core::breakers::window::BreakerRules;
use punctual_core::breakers::{BreakerKey, Breakers, OpenBreaker, Runs};
use punctual_core::clock::{Clock, ManualClock};
use punctual_core::coordinator::{Coordinator, LEADER, LeaderLease};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::LaneId;
use punctual_core::registry::{NodePresence, NodeSession, Registry};
use punctual_core::retry::{RetryCondition, RetryPolicy};
use punctual_core::state::{By, Event, State, transition};
use punctual_core::store::{Claim, Claimant, DispatchTo, Inserted, Start, Store};
use punctual_core::task::Task;
use punctual_core::trail::Actor;
use punctual_leader::elector::{self, Elector};
use punctual_leader::membership::{Membership, OwnPresence};
use punctual_leader::reaper::{Config, Reaper, Report};
use punctual_scheduler::breakers::{self, BreakerWatch, Circuits};
use punctual_scheduler::ownership::OwnedPartitions;
use punctual_store::sqlite::{Options, SqliteStore};
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{START, TENANT, TaskBuilder, at, retry_policy, task};
use tempfile::TempDir;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;

const NODE: NodeId = NodeId::new(1);
const DEAD: NodeId = NodeId::new(2);

struct Harness {
    store: Arc<SqliteStore>,
    clock: Arc<ManualClock>,
    reaper: Reaper,
    presence: Option<Arc<OwnPresence>>,
    _directory: TempDir,
}

impl Harness {
    fn new(alone: bool) -> Self {
        let directory = TempDir::new().unwrap();
        let clock = Arc::new(ManualClock::new(START));
        let store = SqliteStore::open(directory.path(), Arc::clone(&clock) as Arc<dyn Clock>, NODE, Options::default());
        let store = Arc::new(store.unwrap());
        // A presence that is steady from the first record on.
        let presence = (!alone).then(|| Arc::new(OwnPresence::new(Duration::ZERO)));
        let config = Config {
            interval: Duration::from_secs(1),
            lost_after: Duration::from_mins(1),
            poison_after: 3,
            presence: presence.clone(),
        };
        let reaper =
            Reaper::new(Arc::clone(&store) as _, Arc::clone(&store) as _, Arc::clone(&clock) as _, NODE, config);
        Self { store, clock, reaper, presence, _directory: directory }
    }

    async fn submit(&self, task: TaskBuilder) -> Task {
        match self.store.insert(vec![task.build()]).await.unwrap().remove(0) {
            Inserted::Created(task) => task,
            other => panic!("{other:?}"),
        }
    }

    async fn claim(&self, lane: LaneId, claimant: Claimant) -> Task {
        let claim = Claim { lanes: vec![(lane, 1)], limit: 1, claimant };
        self.store.claim(vec![claim]).await.unwrap().remove(0).tasks.remove(0)
    }

    async fn lease(&self, lane: LaneId) -> Task {
        self.claim(lane, Claimant::Worker { name: "w".into(), lease_millis: 10_000, due_by: None }).await
    }

    async fn task(&self, id: TaskId) -> Task {
        self.store.get(TENANT, vec![id]).await.unwrap().remove(0).unwrap()
    }

    /// Takes the lease for `node`, away from any other holder.
    async fn lead(&self, node: NodeId) -> LeaderLease {
        if let Some(held) = self.store.holder(LEADER).await.unwrap().filter(|held| held.lease.holder != node) {
            self.store.release(&held.lease).await.unwrap();
        }
        self.store.acquire(LEADER, node, 1_000_000).await.unwrap().unwrap()
    }

    async fn reap(&self) -> Report {
        self.reaper.run_once(&self.lead(NODE).await).await.unwrap().unwrap()
    }

    async fn record_presence(&self, node: NodeId) {
        self.store.record_node(node_presence(node)).await.unwrap();
        if let Some(presence) = self.presence.as_ref().filter(|_| node == NODE) {
            presence.recorded(Duration::from_hours(1));
        }
    }
}

fn node_presence(id: NodeId) -> NodePresence {
    NodePresence {
        id,
        name: "a".into(),
        address: "127.0.0.1:1".into(),
        roles: vec!["leader".into()],
        version: "1.2.3".into(),
        skew_millis: 0,
        lease: None,
        first_seen_at: START,
        last_seen_at: START,
        session: NodeSession::Unknown,
        gone_at: None,
    }
}

fn last_message(task: &Task) -> String {
    task.trail.last_error().unwrap().1.message.into_owned()
}

fn last_error(task: &Task) -> String {
    task.trail.last_error().unwrap().1.code.into_owned()
}

#[tokio::test]
async fn the_third_lost_worker_makes_a_task_poison() {
    let harness = Harness::new(true);
    let task = harness.submit(task()).await;
    for lost in 1..=3 {
        harness.lease(task.lane.id).await;
        harness.clock.advance_millis(9_999);
        assert_eq!(harness.reap().await, Report::default(), "the lease still runs");
        harness.clock.advance_millis(1);
        assert_eq!(harness.reap().await.reaped, 1);
        let now = harness.task(task.id).await;
        if lost < 3 {
            assert_eq!(
                (now.state(), now.retry_count(), last_error(&now).as_str()),
                (State::Pending, lost, "worker_lost")
            );
        } else {
            assert_eq!((now.state(), last_error(&now).as_str()), (State::DeadLettered, "poisoned"));
        }
        harness.clock.advance_millis(1_000);
    }
}

/// The task itself may kill its workers, whatever the breaker is open for.
#[tokio::test]
async fn a_worker_lost_under_a_breaker_counts_only_as_poison() {
    let harness = Harness::new(true);
    let rules = BreakerRules { window_millis: 300_000, minimum: 20, failure_percent: 90 };
    let owned = Arc::new(OwnedPartitions::everything());
    let circuits = Arc::new(Circuits::new(Arc::clone(&harness.store) as _, rules, 60_000, owned));
    let harness = Harness { reaper: harness.reaper.with_circuits(Arc::clone(&circuits)), ..harness };
    let breaker = OpenBreaker {
        key: BreakerKey::of_tenant(TENANT),
        opened_at: START,
        next_probe_at: START,
        runs: Runs { ok: 0, failed: 20 },
        reason: "20 of 20 failed".into(),
        half_open: false,
        probe: None,
        overtaken: Vec::new(),
        last_probe: None,
    };
    harness.store.open_breaker(breaker).await.unwrap();
    let config = breakers::Config { rules, probe_millis: 60_000, confirm: Duration::ZERO };
    let (store, clock) = (Arc::clone(&harness.store) as _, Arc::clone(&harness.clock) as _);
    BreakerWatch::new(store, circuits, Arc::default(), clock, NODE, config).run_once().await.unwrap();
    let policy = RetryPolicy { max_retries: 1, ..retry_policy() };
    let task = harness.submit(task().retry_policy(policy)).await;
    for lost in 1..=3 {
        harness.lease(task.lane.id).await;
        harness.clock.advance_millis(10_000);
        assert_eq!(harness.reap().await.reaped, 1);
        let now = harness.task(task.id).await;
        let last = now.trail.last().unwrap();
        if lost < 3 {
            assert_eq!((now.state(), now.position.attempts, now.position.crashes), (State::Pending, 0, lost));
            assert_eq!((last.uncounted(), last.reason().as_ref()), (Some("breaker_open"), "worker_lost"));
        } else {
            assert_eq!((now.state(), last.uncounted()), (State::DeadLettered, None));
            assert_eq!(last.reason(), "poisoned");
        }
        harness.clock.advance_millis(1_000);
    }
}

#[tokio::test]
async fn a_timed_out_run_does_not_count_as_poison() {
    let harness = Harness::new(true);
    let task = harness.submit(task().timeout_millis(5_000)).await;
    for _ in 0..3 {
        harness.lease(task.lane.id).await;
        harness.clock.advance_millis(5_000);
        assert_eq!(harness.reap().await.reaped, 1);
        let now = harness.task(task.id).await;
        assert_eq!((now.state(), last_error(&now).as_str()), (State::Pending, "timeout"));
        harness.clock.advance_millis(1_000);
    }
}

/// Its node ends it at the timeout, if the node is there. `retry_on` cannot rule out that it is
/// not.
#[tokio::test]
async fn a_webhook_that_its_node_did_not_end_is_lost() {
    let harness = Harness::new(true);
    let policy = RetryPolicy { retry_on: Some([RetryCondition::Status(503)].into()), ..retry_policy() };
    let task = harness.submit(task().push("http://x.example:80").timeout_millis(5_000).retry_policy(policy)).await;
    let claimant =
        Claimant::Dispatch { to: DispatchTo::Broker { visibility_millis: 10_000 }, terms: Vec::new(), from: None };
    let claimed = harness.claim(task.lane.id, claimant).await;
    let start =
        Start { id: task.id, version: claimed.position.version, worker: "worker_x".into(), grace_millis: 10_000 };
    harness.store.start(vec![start]).await.unwrap();
    harness.clock.advance_millis(14_999);
    assert_eq!(harness.reap().await, Report::default(), "its node may still settle it");
    harness.clock.advance_millis(1);
    assert_eq!(harness.reap().await.reaped, 1);
    let now = harness.task(task.id).await;
    assert_eq!((now.state(), last_error(&now).as_str()), (State::Pending, "worker_lost"));
    assert_eq!(last_message(&now), "worker_x has stopped reporting");
}

#[tokio::test]
async fn a_worker_lost_before_its_timeout_is_lost_after_it_too() {
    let harness = Harness::new(true);
    let task = harness.submit(task().timeout_millis(10_500)).await;
    harness.lease(task.lane.id).await;
    harness.clock.advance_millis(11_000);
    assert_eq!(harness.reap().await.reaped, 1);
    assert_eq!(last_error(&harness.task(task.id).await), "worker_lost");
}

/// Whether the worker is lost as well cannot be known.
#[tokio::test]
async fn a_pull_worker_that_times_out_is_retried_whatever_retry_on_says() {
    let harness = Harness::new(true);
    let policy = RetryPolicy { retry_on: Some([RetryCondition::Status(503)].into()), ..retry_policy() };
    let task = harness.submit(task().timeout_millis(5_000).retry_policy(policy)).await;
    harness.lease(task.lane.id).await;
    harness.clock.advance_millis(5_000);
    assert_eq!(harness.reap().await.reaped, 1);
    assert_eq!(harness.task(task.id).await.state(), State::Pending);
}

#[tokio::test]
async fn a_timed_out_run_says_what_its_timeout_was() {
    for (timeout_millis, shown) in [(5_500_u32, "5.5 seconds"), (1_000, "1 second")] {
        let harness = Harness::new(true);
        let task = harness.submit(task().timeout_millis(u64::from(timeout_millis))).await;
        harness.lease(task.lane.id).await;
        harness.clock.advance_millis(i64::from(timeout_millis));
        harness.reap().await;
        assert_eq!(last_message(&harness.task(task.id).await), format!("the run did not end within {shown}"));
    }
}

#[tokio::test]
async fn a_queued_task_that_never_started_goes_back_uncounted() {
    let harness = Harness::new(true);
    let task = harness.submit(task().push("http://x.example:80")).await;
    harness
        .claim(
            task.lane.id,
            Claimant::Dispatch { to: DispatchTo::Broker { visibility_millis: 10_000 }, terms: Vec::new(), from: None },
        )
        .await;
    harness.clock.advance_millis(10_000);
    assert_eq!(harness.reap().await.reaped, 1);
    let now = harness.task(task.id).await;
    assert_eq!((now.state(), now.position.attempts), (State::Pending, 0));
}

#[tokio::test]
async fn a_waiting_task_that_expires_is_failed() {
    let harness = Harness::new(true);
    let task = harness.submit(task().due(at(1_000)).expires_at(at(5_000))).await;
    harness.clock.advance_millis(4_999);
    assert_eq!(harness.reap().await, Report::default());
    harness.clock.advance_millis(1);
    assert_eq!(harness.reap().await.reaped, 1);
    let now = harness.task(task.id).await;
    assert_eq!((now.state(), last_error(&now).as_str()), (State::Failed, "expired"));
}

#[tokio::test]
async fn a_cancelled_run_whose_worker_is_lost_is_cancelled() {
    let harness = Harness::new(true);
    let task = harness.submit(task()).await;
    let leased = harness.lease(task.lane.id).await;
    let by = By { now: START, node: NODE, actor: Actor::Client };
    let cancel = transition(&leased.position, Event::Cancel, &by).unwrap();
    harness.store.apply(vec![(task.id, cancel)]).await.unwrap();
    harness.clock.advance_millis(10_000);
    assert_eq!(harness.reap().await.reaped, 1);
    assert_eq!(harness.task(task.id).await.state(), State::Cancelled);
}

#[tokio::test]
async fn only_an_embedded_store_drops_silent_nodes_at_once() {
    for (alone, removed) in [(true, 1), (false, 0)] {
        let harness = Harness::new(alone);
        harness.record_presence(NODE).await;
        harness.record_presence(DEAD).await;
        assert_eq!(harness.reap().await.removed_nodes, removed);
        harness.record_presence(DEAD).await;
        harness.clock.advance_millis(60_001);
        harness.record_presence(NODE).await;
        assert_eq!(harness.reap().await.removed_nodes, 1);
        assert_eq!(harness.reap().await.removed_nodes, 0);
    }
}

#[tokio::test]
async fn a_node_without_steady_presence_removes_no_other() {
    let harness = Harness::new(false);
    harness.record_presence(DEAD).await;
    harness.clock.advance_millis(60_001);
    assert_eq!(harness.reap().await, Report::default());
    harness.record_presence(NODE).await;
    assert_eq!(harness.reap().await.removed_nodes, 1);
}

/// The leader's own setting is a minute.
#[tokio::test]
async fn a_node_is_dead_by_its_own_lease() {
    let harness = Harness::new(false);
    let (quick, patient) = (NodeId::new(3), NodeId::new(4));
    let leased = |id, lease| NodePresence { lease: Some(lease), ..node_presence(id) };
    harness.store.record_node(leased(quick, Duration::from_secs(1))).await.unwrap();
    harness.store.record_node(leased(patient, Duration::from_mins(5))).await.unwrap();
    harness.record_presence(DEAD).await;
    let known = async || harness.store.nodes().await.unwrap().iter().map(|node| node.id).collect::<Vec<_>>();
    harness.clock.advance_millis(1_001);
    harness.record_presence(NODE).await;
    // This node has to be steady for that long too.
    eventually("the node with the short lease is removed", Duration::from_secs(20), async || {
        harness.presence.as_ref().unwrap().recorded(Duration::from_millis(600));
        if harness.reap().await.removed_nodes == 1 { Ok(()) } else { Err("it is not".to_owned()) }
    })
    .await;
    assert_eq!(known().await, [DEAD, patient, NODE]);
    harness.clock.advance_millis(60_000);
    harness.record_presence(NODE).await;
    harness.reap().await;
    assert_eq!(known().await, [patient, NODE], "one that says no lease has the leader's");
}

#[tokio::test]
async fn a_former_leader_takes_nothing_back() {
    let harness = Harness::new(false);
    let task = harness.submit(task()).await;
    harness.lease(task.lane.id).await;
    harness.record_presence(DEAD).await;
    harness.record_presence(NODE).await;
    let past = harness.lead(NODE).await;
    let present = harness.lead(DEAD).await;
    assert!(present.term > past.term);
    harness.clock.advance_millis(60_001);
    harness.record_presence(NODE).await;
    let before = harness.task(task.id).await;
    assert_eq!(harness.reaper.run_once(&past).await.unwrap(), None);
    // It ends without a cancellation.
    harness.reaper.run(&past, CancellationToken::new()).await;
    assert_eq!(harness.task(task.id).await.position, before.position);
    assert_eq!(harness.store.nodes().await.unwrap().len(), 2, "it removes no node");
    assert_eq!(harness.reaper.run_once(&present).await.unwrap().unwrap().reaped, 1);
}

#[tokio::test]
async fn leadership_ends_with_the_leaders_loops() {
    let harness = Harness::new(true);
    let config = elector::Config { lease: Duration::from_secs(30), renewal: Duration::from_millis(20) };
    let elector = Elector::new(Arc::clone(&harness.store) as _, Arc::clone(&harness.clock) as _, NODE, config);
    let (sender, mut leases) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let lead = move |lease: LeaderLease, _: CancellationToken| {
        // Ends at once, as a loop does that the store has refused.
        sender.send(lease).unwrap();
        std::future::ready(())
    };
    let running = tokio::spawn(elector.run(lead, stop.clone()));
    let (first, second) = (leases.recv().await.unwrap(), leases.recv().await.unwrap());
    assert_eq!((first.name.as_str(), first.holder), (LEADER, NODE));
    assert!(second.term > first.term, "the lease was released in between");
    stop.cancel();
    running.await.unwrap();
    assert_eq!(harness.store.holder(LEADER).await.unwrap(), None);
}

#[tokio::test]
async fn an_elector_asks_again_when_the_lease_ends() {
    let harness = Harness::new(true);
    harness.store.acquire(LEADER, DEAD, 200).await.unwrap().unwrap();
    harness.clock.advance_millis(150);
    // By its renewals it would ask again in half an hour at the earliest.
    let config = elector::Config { lease: Duration::from_hours(3), renewal: Duration::from_hours(1) };
    let elector = Elector::new(Arc::clone(&harness.store) as _, Arc::clone(&harness.clock) as _, NODE, config);
    let (sender, mut leases) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let lead = move |lease: LeaderLease, stop: CancellationToken| {
        sender.send(lease).unwrap();
        async move { stop.cancelled().await }
    };
    let running = tokio::spawn(elector.run(lead, stop.clone()));
    let early = tokio::time::timeout(Duration::from_millis(300), leases.recv()).await;
    assert!(early.is_err(), "the lease of the other node has not ended: {early:?}");
    harness.clock.advance_millis(50);
    let lease = tokio::time::timeout(Duration::from_secs(20), leases.recv()).await.unwrap().unwrap();
    assert_eq!(lease.holder, NODE);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn an_elector_asks_when_it_is_woken() {
    let harness = Harness::new(true);
    let held = harness.lead(DEAD).await;
    let config = elector::Config { lease: Duration::from_hours(3), renewal: Duration::from_hours(1) };
    let freed = Arc::new(Notify::new());
    let elector = Elector::new(Arc::clone(&harness.store) as _, Arc::clone(&harness.clock) as _, NODE, config)
        .woken_by(Arc::clone(&freed));
    let (sender, mut leases) = mpsc::unbounded_channel();
    let stop = CancellationToken::new();
    let lead = move |lease: LeaderLease, stop: CancellationToken| {
        sender.send(lease).unwrap();
        async move { stop.cancelled().await }
    };
    let running = tokio::spawn(elector.run(lead, stop.clone()));
    let early = tokio::time::timeout(Duration::from_millis(300), leases.recv()).await;
    assert!(early.is_err(), "the other node leads: {early:?}");
    harness.store.release(&held).await.unwrap();
    freed.notify_one();
    let lease = tokio::time::timeout(Duration::from_secs(20), leases.recv()).await.unwrap().unwrap();
    assert_eq!(lease.holder, NODE);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_node_records_its_presence_with_its_clock_skew() {
    let harness = Harness::new(false);
    let skew = Arc::new(|| -250);
    let me = node_presence(NODE);
    let presence = Arc::new(OwnPresence::new(Duration::ZERO));
    let often = Duration::from_millis(10);
    let membership = Membership::new(Arc::clone(&harness.store) as _, me.clone(), skew, often, Arc::clone(&presence));
    let stop = CancellationToken::new();
    let running = tokio::spawn(membership.run(stop.clone()));
    let seen = |last_seen_at| NodePresence { skew_millis: -250, last_seen_at, ..me.clone() };
    for later in [START, at(5_000)] {
        eventually("its presence is recorded", Duration::from_secs(10), async || {
            let nodes = harness.store.nodes().await.unwrap();
            if nodes == [seen(later)] { Ok(()) } else { Err(format!("{nodes:?}")) }
        })
        .await;
        harness.clock.advance_millis(5_000);
    }
    // The row is there a moment before the node knows that it was written.
    eventually("it knows", Duration::from_secs(10), async || {
        if presence.is_steady_for(None) { Ok(()) } else { Err("it is not steady".to_owned()) }
    })
    .await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn a_node_that_shuts_down_leaves_the_registry() {
    let harness = Harness::new(false);
    let stopped = CancellationToken::new();
    stopped.cancel();
    let own = Arc::new(OwnPresence::new(Duration::ZERO));
    harness.record_presence(NODE).await;
    harness.record_presence(DEAD).await;
    let registry = Arc::clone(&harness.store) as _;
    Membership::new(registry, node_presence(NODE), Arc::new(|| 0), Duration::from_secs(1), own).run(stopped).await;
    let nodes = harness.store.nodes().await.unwrap();
    assert_eq!(nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [DEAD]);
}
