//! The loop of the worker role: receives messages and starts their runs, in batches.
//!
//! [`Executor::run`] is the rest of a run. A received message takes a call slot, which bounds all
//! calls together. The store starts all waiting runs in one call, and then the messages are
//! acknowledged. Invariant: from then on the task's hold protects the run, not the broker.
//!
//! The shutdown has phases, by the clock. First the loop receives nothing more, and gives back the
//! messages in a broker that ends with this process. After the drain it aborts the calls and gives
//! them back. It still settles runs until the flush is over. Then [`Consumer::run`] returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use punctual_core::broker::{Broker, Delivery, Message, Subscription, WEBHOOK_POOL};
use punctual_core::clock::Clock;
use punctual_core::ids::NodeId;
use punctual_core::store::{Start, Store};
use punctual_core::task::Task;
use punctual_core::time::millis;
use punctual_scheduler::breakers::Circuits;
use punctual_scheduler::targets::Targets;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::executor::{Executor, RUN_MAX, StartedRun};
use crate::give_back::give_back;
use crate::retry::{PAUSES, RetryError, retry};
use crate::settler::{FinishedRun, WebhookSettler};
use crate::slots::TargetSlot;
use crate::stats::WorkerStats;
use crate::webhook::Webhooks;

/// What the worker works with.
#[derive(Clone)]
pub struct Deps {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Where dispatched tasks come from.
    pub broker: Arc<dyn Broker>,
    /// The store's clock.
    pub clock: Arc<dyn Clock>,
    /// The slots of webhook targets, shared with the dispatcher.
    pub targets: Arc<Targets>,
    /// The breakers, which count how runs end.
    pub circuits: Arc<Circuits>,
    /// The HTTP client.
    pub webhooks: Webhooks,
    /// The worker's counters.
    pub stats: Arc<WorkerStats>,
    /// This process.
    pub node: NodeId,
}

/// How the worker works.
#[derive(Clone, Debug)]
pub struct Config {
    /// The pool it consumes.
    pub pool: String,
    /// The name under which it runs tasks.
    pub worker: String,
    /// The maximum number of calls at a time.
    pub concurrency: usize,
    /// The maximum number of runs that are started or settled in one call to the store.
    pub batch: usize,
    /// How long after its timeout the node holds a run, so that it can settle it.
    pub grace: Duration,
    /// How long calls may continue after the shutdown began.
    pub drain: Duration,
    /// How long after the drain runs are still settled.
    pub flush: Duration,
    /// Whether the broker ends with this process: then its messages are given back at the end.
    pub broker_ends_with_us: bool,
}

impl Config {
    /// The usual numbers, under this name.
    pub fn named(worker: String) -> Self {
        Self {
            pool: WEBHOOK_POOL.to_owned(),
            worker,
            concurrency: 256,
            batch: 256,
            grace: Duration::from_secs(10),
            drain: Duration::from_secs(25),
            flush: Duration::from_secs(5),
            broker_ends_with_us: true,
        }
    }
}

/// What became of the runs and messages that the worker had at the shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls that ended by themselves during the drain.
    pub drained: usize,
    /// Tasks given back: calls that were cut off, and messages that were not started.
    pub given_back: usize,
}

/// The maximum number of runs that are started in one call. Messages that arrive meanwhile wait for
/// it, and the store serves a small call before large ones.
const START_MAX: usize = 64;

/// How far this node's clock may be behind the store's when it decides whether it still holds a
/// task.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(1);

/// The worker role (see the module).
pub struct Consumer {
    deps: Deps,
    config: Config,
    call_slots: Arc<Semaphore>,
    calls: TaskTracker,
}

impl Consumer {
    /// A worker.
    pub fn new(deps: Deps, config: Config) -> Self {
        Self {
            call_slots: Arc::new(Semaphore::new(config.concurrency.clamp(1, Semaphore::MAX_PERMITS))),
            calls: TaskTracker::new(),
            deps,
            config,
        }
    }

    /// Runs until `shutdown` is cancelled or the broker is closed; returns when every run is
    /// settled.
    pub async fn run(self, shutdown: CancellationToken) -> Report {
        let phases = ShutdownPhases::new(shutdown, self.config.drain, self.config.flush);
        let (finished, outcomes) = mpsc::channel(self.config.concurrency.max(1));
        let settler = tokio::spawn(self.settler().run(outcomes, phases.give_up.clone()));
        let executor = Arc::new(self.executor(finished, &phases));
        let mut given_back = 0;
        if let Some(mut subscription) = self.subscribe(&phases).await {
            self.consume(&mut subscription, &executor, &phases).await;
            given_back += self.give_back_waiting(&mut subscription, &phases).await;
            self.calls.close();
            self.calls.wait().await;
            // The dispatcher may have published more while the calls ended.
            given_back += self.give_back_waiting(&mut subscription, &phases).await;
        }
        let drained = executor.drained.load(Ordering::Relaxed);
        // The last sender goes with it, which ends the settler.
        drop(executor);
        given_back += settler.await.unwrap_or_default();
        Report { drained, given_back }
    }

    /// The run of a webhook: receive → start → call → judge → settle. The last three are
    /// [`Executor::run`], which runs as a task of its own.
    async fn consume(
        &self,
        subscription: &mut Box<dyn Subscription>,
        executor: &Arc<Executor>,
        phases: &ShutdownPhases,
    ) {
        loop {
            let received = tokio::select! {
                biased;
                () = phases.shutdown.cancelled() => return,
                received = self.receive(subscription) => received,
            };
            let Some(received) = received else { return };
            for run in self.start(received, phases).await {
                self.calls.spawn(Arc::clone(executor).run(run));
            }
        }
    }

    /// Waits for a call slot and a message, and adds the messages that wait already. None when the
    /// broker was closed. Dropping the future loses nothing: it does not wait once it has a
    /// message.
    async fn receive(&self, subscription: &mut Box<dyn Subscription>) -> Option<Vec<ReceivedMessage>> {
        let call_slot = Arc::clone(&self.call_slots).acquire_owned().await.ok()?;
        let mut received = vec![self.received(subscription.recv().await?, call_slot)];
        while received.len() < self.batch().min(START_MAX)
            && let Ok(call_slot) = Arc::clone(&self.call_slots).try_acquire_owned()
            && let Some(delivery) = recv_now(subscription).await
        {
            received.push(self.received(delivery, call_slot));
        }
        Some(received)
    }

    fn received(&self, delivery: Delivery, call_slot: OwnedSemaphorePermit) -> ReceivedMessage {
        let target_slot = TargetSlot::of(&delivery.message, &self.deps.targets);
        ReceivedMessage { delivery, call_slot, target_slot }
    }

    /// Starts the runs in the store, and returns those that started. The other tasks were given
    /// back, cancelled or started by another node.
    async fn start(&self, received: Vec<ReceivedMessage>, phases: &ShutdownPhases) -> Vec<StartedRun> {
        let mut started = Vec::with_capacity(received.len());
        let mut batches = vec![received];
        while let Some(received) = batches.pop() {
            let call =
                || self.deps.store.start(received.iter().map(|one| self.start_of(&one.delivery.message)).collect());
            match retry("cannot start runs", None, &phases.give_up, call).await {
                Ok(tasks) => {
                    debug_assert_eq!(tasks.len(), received.len(), "an answer for each start");
                    for (one, task) in received.into_iter().zip(tasks) {
                        let ReceivedMessage { delivery, call_slot, target_slot } = one;
                        delivery.ack();
                        started.extend(task.map(|task| self.started(task, call_slot, target_slot)));
                    }
                }
                // One unreadable task must not hold up the others of its batch.
                Err(RetryError::Permanent(_)) if received.len() > 1 => {
                    batches.extend(received.into_iter().map(|one| vec![one]));
                }
                Err(RetryError::Permanent(error)) => {
                    for one in received {
                        let id = one.delivery.message.task_id;
                        tracing::error!(error = %error, task.id = %id, "cannot start a run; the reaper will take it back");
                        one.delivery.ack();
                    }
                }
                // The flush is over: the reaper takes the tasks back.
                Err(RetryError::OutOfTime) => {}
            }
        }
        started
    }

    fn start_of(&self, message: &Message) -> Start {
        Start {
            id: message.task_id,
            version: message.version,
            worker: self.config.worker.clone(),
            grace_millis: millis(self.config.grace),
        }
    }

    fn started(&self, task: Task, call_slot: OwnedSemaphorePermit, target_slot: TargetSlot) -> StartedRun {
        let expires_at = task.hold.as_ref().map_or(task.due_at, |hold| hold.expires_at);
        let held_for = expires_at.duration_from(self.deps.clock.now()).min(RUN_MAX) + CLOCK_TOLERANCE;
        StartedRun { task, held_until: Instant::now() + held_for, call_slot, target_slot }
    }

    /// Gives back the messages of a broker that ends with this process; returns how many.
    async fn give_back_waiting(&self, subscription: &mut Box<dyn Subscription>, phases: &ShutdownPhases) -> usize {
        let mut given_back = 0;
        while self.config.broker_ends_with_us && !phases.give_up.is_cancelled() {
            let mut deliveries = Vec::new();
            while deliveries.len() < self.batch()
                && let Some(delivery) = recv_now(subscription).await
            {
                deliveries.push(delivery);
            }
            if deliveries.is_empty() {
                break;
            }
            let messages: Vec<Message> = deliveries.iter().map(|delivery| delivery.message.clone()).collect();
            for message in &messages {
                drop(TargetSlot::of(message, &self.deps.targets));
            }
            given_back += give_back(&self.deps, messages, &phases.give_up).await;
            deliveries.into_iter().for_each(Delivery::ack);
        }
        given_back
    }

    /// None if the shutdown began before the broker answered.
    async fn subscribe(&self, phases: &ShutdownPhases) -> Option<Box<dyn Subscription>> {
        for failures in 1.. {
            match self.deps.broker.subscribe(&self.config.pool, self.batch()).await {
                Ok(subscription) => return Some(subscription),
                Err(error) if failures == 1 => {
                    tracing::warn!(error = %error, "cannot subscribe to the broker; retrying until it answers");
                }
                Err(_) => {}
            }
            tokio::select! {
                () = phases.shutdown.cancelled() => break,
                () = tokio::time::sleep(PAUSES.pause(failures, rand::random())) => {}
            }
        }
        None
    }

    fn executor(&self, settler: mpsc::Sender<FinishedRun>, phases: &ShutdownPhases) -> Executor {
        Executor {
            webhooks: self.deps.webhooks.clone(),
            clock: Arc::clone(&self.deps.clock),
            stats: Arc::clone(&self.deps.stats),
            settler,
            shutdown: phases.shutdown.clone(),
            abort: phases.abort.clone(),
            drained: AtomicUsize::new(0),
        }
    }

    fn settler(&self) -> WebhookSettler {
        WebhookSettler {
            store: Arc::clone(&self.deps.store),
            clock: Arc::clone(&self.deps.clock),
            node: self.deps.node,
            worker: self.config.worker.clone(),
            stats: Arc::clone(&self.deps.stats),
            circuits: Arc::clone(&self.deps.circuits),
            batch: self.batch(),
        }
    }

    fn batch(&self) -> usize {
        self.config.batch.max(1)
    }
}

/// The phases of the shutdown. They follow each other by the clock, so a call that hangs delays
/// none of them.
struct ShutdownPhases {
    /// Receive nothing more.
    shutdown: CancellationToken,
    /// Abort the calls that still run.
    abort: CancellationToken,
    /// Do not call the store again.
    give_up: CancellationToken,
    /// Ends the timer with the worker.
    _ended: tokio_util::sync::DropGuard,
}

impl ShutdownPhases {
    fn new(shutdown: CancellationToken, drain: Duration, flush: Duration) -> Self {
        let (abort, give_up, ended) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let (first, second, third) = (shutdown.clone(), abort.clone(), give_up.clone());
        let steps = async move {
            first.cancelled().await;
            tokio::time::sleep(drain).await;
            second.cancel();
            tokio::time::sleep(flush).await;
            third.cancel();
        };
        tokio::spawn(ended.clone().run_until_cancelled_owned(steps));
        Self { shutdown, abort, give_up, _ended: ended.drop_guard() }
    }
}

/// A message whose run has not started.
struct ReceivedMessage {
    delivery: Delivery,
    call_slot: OwnedSemaphorePermit,
    target_slot: TargetSlot,
}

/// The next delivery if there is one now.
async fn recv_now(subscription: &mut Box<dyn Subscription>) -> Option<Delivery> {
    tokio::select! {
        biased;
        delivery = subscription.recv() => delivery,
        () = std::future::ready(()) => None,
    }
}
