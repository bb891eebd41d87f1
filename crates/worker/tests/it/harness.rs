//! A worker over a real store and broker, with a dispatcher that tests drive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use punctual_broker::memory::MemoryBroker;
use punctual_core::broker::{Broker, Message, WEBHOOK_POOL};
use punctual_core::clock::{Clock, ManualClock};
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::json::Json;
use punctual_core::lane::Route;
use punctual_core::state::{By, Event, State, transition};
use punctual_core::store::{Applied, Claim, Claimant, DispatchTo, Inserted};
use punctual_core::task::{NewTask, Task};
use punctual_core::time::{Timestamp, millis};
use punctual_core::trail::Actor;
use punctual_scheduler::targets::{Slot, Targets};
use punctual_scheduler::webhook_path::LocalWorker;
use punctual_store::sqlite::{Options, SqliteStore};
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{START, TENANT, task};
use punctual_worker::{Config, Consumer, Deps, Report, WebhookWorker, WorkerStats};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{AMPLE, webhooks};

/// By how much every run of the harness is late.
pub const LATE: i64 = 250;

pub struct Harness {
    pub deps: Deps,
    pub broker: Arc<MemoryBroker>,
    pub config: Config,
    pub shutdown: CancellationToken,
    /// The sum of the lateness of all runs.
    pub lateness: Arc<AtomicU64>,
    _data: tempfile::TempDir,
}

impl Harness {
    pub fn open() -> Self {
        let data = tempfile::tempdir().unwrap();
        let node = NodeId::random();
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(START.plus_millis(LATE)));
        let store = SqliteStore::open(data.path(), Arc::clone(&clock), node, Options::default()).unwrap();
        let lateness = Arc::new(AtomicU64::new(0));
        let sum = Arc::clone(&lateness);
        let store = Arc::new(store);
        let deps = Deps {
            store: store.clone(),
            secrets: store,
            clock,
            targets: Arc::new(Targets::new(1_000, usize::MAX)),
            circuits: Arc::default(),
            webhooks: webhooks(),
            stats: Arc::new(WorkerStats::new(move |millis| _ = sum.fetch_add(millis, Ordering::Relaxed))),
            node,
        };
        let config = Config { drain: AMPLE, ..Config::named("webhook-1".to_owned()) };
        let broker = Arc::new(MemoryBroker::new(10_000));
        Self { deps, broker, config, shutdown: CancellationToken::new(), lateness, _data: data }
    }

    /// Starts a worker.
    pub fn start(&self) -> JoinHandle<Report> {
        let broker = Arc::clone(&self.broker) as Arc<dyn Broker>;
        tokio::spawn(Consumer::new(self.deps.clone(), broker, self.config.clone()).run(self.shutdown.clone()))
    }

    /// Starts a worker without a broker, and returns what runs are handed over to.
    pub fn start_local(&self) -> (JoinHandle<Report>, Arc<dyn LocalWorker>) {
        let worker = WebhookWorker::new(self.deps.clone(), self.config.clone());
        let handle = worker.handle();
        (tokio::spawn(worker.run(self.shutdown.clone())), handle)
    }

    /// Claims everything that is due for a worker of this process, which starts the runs.
    pub async fn claim_started(&self, worker: &dyn LocalWorker) -> Vec<Task> {
        let (name, grace) = worker.claims_as();
        let to = DispatchTo::Worker { name, grace_millis: millis(grace) };
        let tasks = self.claim(to).await;
        for task in &tasks {
            self.deps.targets.take(&Slot::of_lane(&task.lane.key));
        }
        tasks
    }

    async fn claim(&self, to: DispatchTo) -> Vec<Task> {
        let heads = self.deps.store.heads(None, self.now().plus_millis(1), 1_000).await.unwrap();
        let claim = Claim {
            lanes: heads.iter().map(|head| (head.lane.id, 10_000)).collect(),
            limit: 10_000,
            claimant: Claimant::Dispatch { to, terms: Vec::new(), from: None },
        };
        self.deps.store.claim(vec![claim]).await.unwrap().remove(0).tasks
    }

    /// Stops the worker, and waits until it has ended.
    pub async fn stop(&self, worker: JoinHandle<Report>) -> Report {
        self.shutdown.cancel();
        worker.await.unwrap()
    }

    pub fn now(&self) -> Timestamp {
        self.deps.clock.now()
    }

    pub async fn insert(&self, tasks: Vec<NewTask>) -> Vec<TaskId> {
        let inserted = self.deps.store.insert(tasks).await.unwrap();
        let id = |inserted: &Inserted| match inserted {
            Inserted::Created(task) => task.id,
            other => panic!("{other:?}"),
        };
        inserted.iter().map(id).collect()
    }

    /// Claims everything that is due and publishes it, as the dispatcher does.
    pub async fn dispatch(&self) -> Vec<Message> {
        let tasks = self.claim(DispatchTo::Broker { visibility_millis: 60_000 }).await;
        let messages: Vec<Message> = tasks.iter().map(message).collect();
        self.publish(messages.clone()).await;
        messages
    }

    pub async fn publish(&self, messages: Vec<Message>) {
        for message in &messages {
            self.deps.targets.take(&Slot::of(message));
        }
        self.broker.publish(messages).await.unwrap();
    }

    pub async fn submit(&self, tasks: Vec<NewTask>) -> Vec<TaskId> {
        let ids = self.insert(tasks).await;
        self.dispatch().await;
        ids
    }

    pub async fn get(&self, id: TaskId) -> Task {
        self.deps.store.get(TENANT, vec![id]).await.unwrap().remove(0).expect("the task is there")
    }

    /// The task, once it is in this state.
    pub async fn until(&self, id: TaskId, state: State) -> Task {
        eventually(state.as_str(), AMPLE, async || {
            let task = self.get(id).await;
            if task.state() == state { Ok(task) } else { Err(task.state().as_str().to_owned()) }
        })
        .await
    }

    /// Waits until all slots are free.
    pub async fn until_idle(&self, target: &str) {
        eventually("all slots free", Duration::from_secs(5), async || {
            let taken = (self.deps.targets.taken_at(target), self.deps.stats.in_flight());
            if taken == (0, 0) { Ok(()) } else { Err(format!("{taken:?}")) }
        })
        .await;
    }

    /// Runs a task of a pull worker to its end, with this result.
    pub async fn completed(&self, kind: &str, result: &str) -> TaskId {
        let id = self.insert(vec![task().kind(kind).queue(kind).build()]).await[0];
        let claimant = Claimant::Worker { name: "w".to_owned(), lease_millis: 60_000, due_by: None };
        let claim = Claim { lanes: vec![(self.get(id).await.lane.id, 1)], limit: 1, claimant };
        assert_eq!(self.deps.store.claim(vec![claim]).await.unwrap()[0].tasks.len(), 1);
        let result = Some(Json::parse(result).unwrap());
        self.change(id, Event::Complete { result, http_status: None, dropped: None }).await;
        id
    }

    /// Changes a task behind the worker's back.
    pub async fn change(&self, id: TaskId, event: Event<'_>) {
        let by = By { now: self.now(), node: NodeId::new(1), actor: Actor::Reaper };
        let change = transition(&self.get(id).await.position, event, &by).unwrap();
        let applied = self.deps.store.apply(vec![(id, change)]).await.unwrap();
        assert!(matches!(applied[0], Applied::Done(_)));
    }
}

fn message(task: &Task) -> Message {
    let key = &task.lane.key;
    let Route::Push(target) = &key.route else { panic!("not for webhooks") };
    Message {
        task_id: task.id,
        version: task.position.version,
        tenant: key.tenant.clone(),
        priority: key.priority,
        pool: WEBHOOK_POOL.to_owned(),
        target: target.clone(),
    }
}
