//! The loop of the worker role: receives, begins runs in batches, lets them fly.
//!
//! A delivery takes a slot (all calls together are bounded), is begun in the store
//! together with all that wait beside it, and is acknowledged: from then on the task's
//! hold stands for it, not the broker. Its place at the target is given back when the
//! call is over, whatever became of it.
//!
//! The end: nothing more is received, and what waits in a broker that ends with this
//! process is given back; calls may finish until the drain is over and are then given
//! back; what came of them is written; `run` returns.

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
use punctual_scheduler::targets::{Slot, Targets};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::executor::{Executor, LONGEST_RUN};
use crate::give_back::give_back;
use crate::outcome::Outcome;
use crate::retry::{GaveUp, PAUSES, retry};
use crate::settle::{Finished, Settler};
use crate::stats::WorkerStats;
use crate::webhook::Webhooks;

/// What the worker works with.
#[derive(Clone)]
pub struct Deps {
    /// The truth.
    pub store: Arc<dyn Store>,
    /// Where dispatched tasks come from.
    pub broker: Arc<dyn Broker>,
    /// The store's clock.
    pub clock: Arc<dyn Clock>,
    /// The places of webhook targets, shared with the dispatcher.
    pub targets: Arc<Targets>,
    /// The breakers, which are told how runs end.
    pub circuits: Arc<Circuits>,
    /// The client.
    pub webhooks: Webhooks,
    /// What is counted.
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
    /// Calls on their way at a time.
    pub concurrency: usize,
    /// Runs begun or settled in one write.
    pub batch: usize,
    /// How long after its timeout a run stays ours, so that its outcome can be written.
    pub grace: Duration,
    /// How long calls may go on after the order to stop.
    pub drain: Duration,
    /// How long, after the drain, the store is asked to take what is left to write.
    pub goodbye: Duration,
    /// The broker ends with this process: what waits in it is given back at the end.
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
            goodbye: Duration::from_secs(5),
            broker_ends_with_us: true,
        }
    }
}

/// What became of what was at hand when the worker was told to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Calls that ended by themselves during the drain.
    pub drained: usize,
    /// Tasks given back: calls cut off, and messages that had not been begun.
    pub given_back: usize,
}

/// Runs begun together at the most: what comes meanwhile waits for them, and few make a small call to the store, which
/// passes large ones.
const BEGIN_TOGETHER: usize = 64;

/// The worker role (see the module).
pub struct Consumer {
    deps: Deps,
    config: Config,
    slots: Arc<Semaphore>,
    executor: Arc<Executor>,
    flights: TaskTracker,
    drained: Arc<AtomicUsize>,
}

impl Consumer {
    /// A worker.
    pub fn new(deps: Deps, config: Config) -> Self {
        let executor = Executor::new(deps.webhooks.clone(), Arc::clone(&deps.clock), Arc::clone(&deps.stats));
        Self {
            slots: Arc::new(Semaphore::new(config.concurrency.clamp(1, Semaphore::MAX_PERMITS))),
            executor: Arc::new(executor),
            flights: TaskTracker::new(),
            drained: Arc::default(),
            deps,
            config,
        }
    }

    /// Works until told to stop, or until the broker is closed; returns when everything at hand is settled.
    pub async fn run(self, shutdown: CancellationToken) -> Report {
        let phases = Phases::new(shutdown, self.config.drain, self.config.goodbye);
        let (finished, outcomes) = mpsc::channel(self.config.concurrency.max(1));
        let settler = tokio::spawn(self.settler().run(outcomes, phases.give_up.clone()));
        let mut given_back = 0;
        if let Some(mut subscription) = self.subscribe(&phases).await {
            self.consume(&mut subscription, &finished, &phases).await;
            given_back += self.empty(&mut subscription, &phases).await;
            self.flights.close();
            self.flights.wait().await;
            // What a dispatcher published while the calls ended.
            given_back += self.empty(&mut subscription, &phases).await;
        }
        drop(finished);
        given_back += settler.await.unwrap_or_default();
        Report { drained: self.drained.load(Ordering::Relaxed), given_back }
    }

    fn settler(&self) -> Settler {
        Settler {
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

    /// None when told to stop before the broker answered.
    async fn subscribe(&self, phases: &Phases) -> Option<Box<dyn Subscription>> {
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

    async fn consume(
        &self,
        subscription: &mut Box<dyn Subscription>,
        finished: &mpsc::Sender<Finished>,
        phases: &Phases,
    ) {
        loop {
            let gathered = tokio::select! {
                biased;
                () = phases.shutdown.cancelled() => return,
                gathered = self.gather(subscription) => gathered,
            };
            let Some(received) = gathered else { return };
            for (task, at_hand) in self.start(received, phases).await {
                self.take_off(task, at_hand, finished.clone(), phases);
            }
        }
    }

    /// Waits for a slot and a delivery, then takes along what waits already. Dropping it loses nothing: it does not
    /// wait once it has a delivery in hand. None when the broker was closed.
    async fn gather(&self, subscription: &mut Box<dyn Subscription>) -> Option<Vec<Received>> {
        let slot = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        let mut received = vec![self.received(subscription.recv().await?, slot)];
        while received.len() < self.batch().min(BEGIN_TOGETHER)
            && let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned()
            && let Some(delivery) = recv_now(subscription).await
        {
            received.push(self.received(delivery, slot));
        }
        Some(received)
    }

    fn received(&self, delivery: Delivery, slot: OwnedSemaphorePermit) -> Received {
        let place = TakenPlace { targets: Arc::clone(&self.deps.targets), place: Slot::of(&delivery.message) };
        Received { delivery, at_hand: AtHand { _slot: slot, place } }
    }

    /// Begins runs; answers those that are ours now. The others were given back, cancelled or begun elsewhere.
    async fn start(&self, received: Vec<Received>, phases: &Phases) -> Vec<(Task, AtHand)> {
        let mut begun = Vec::with_capacity(received.len());
        let mut batches = vec![received];
        while let Some(received) = batches.pop() {
            let ask =
                || self.deps.store.start(received.iter().map(|one| self.start_of(&one.delivery.message)).collect());
            match retry("cannot begin runs", None, &phases.give_up, ask).await {
                Ok(tasks) => {
                    for (one, task) in received.into_iter().zip(tasks) {
                        one.delivery.ack();
                        begun.extend(task.map(|task| (task, one.at_hand)));
                    }
                }
                Err(GaveUp::Permanent(_)) if received.len() > 1 => {
                    batches.extend(received.into_iter().map(|one| vec![one]));
                }
                Err(GaveUp::Permanent(error)) => {
                    for one in received {
                        tracing::error!(error = %error, task.id = %one.delivery.message.task_id, "a run could not begin");
                        one.delivery.ack();
                    }
                }
                // The store is gone and so are we: the reaper finds them.
                Err(GaveUp::OutOfTime) => {}
            }
        }
        begun
    }

    fn start_of(&self, message: &Message) -> Start {
        Start {
            id: message.task_id,
            version: message.version,
            worker: self.config.worker.clone(),
            grace_millis: millis(self.config.grace),
        }
    }

    fn take_off(&self, task: Task, at_hand: AtHand, finished: mpsc::Sender<Finished>, phases: &Phases) {
        let executor = Arc::clone(&self.executor);
        let drained = Arc::clone(&self.drained);
        let (shutdown, abort) = (phases.shutdown.clone(), phases.abort.clone());
        let held_until = Instant::now() + self.held_for(&task);
        self.flights.spawn(async move {
            let outcome = executor.run(&task, &abort).await;
            let AtHand { _slot: slot, place } = at_hand;
            drop(place);
            if shutdown.is_cancelled() && outcome != Outcome::GivenBack {
                drained.fetch_add(1, Ordering::Relaxed);
            }
            if finished.send(Finished::new(&task, outcome, held_until)).await.is_err() {
                tracing::error!(task.id = %task.id, "nobody is left to settle a run");
            }
            // Kept until the outcome is on its way: a store that falls behind slows the calls down.
            drop(slot);
        });
    }

    /// For how long nobody takes a task from us, with a second for the clocks to disagree.
    fn held_for(&self, task: &Task) -> Duration {
        let expires_at = task.hold.as_ref().map_or(task.due_at, |hold| hold.expires_at);
        expires_at.duration_from(self.deps.clock.now()).min(LONGEST_RUN) + Duration::from_secs(1)
    }

    /// Gives back what waits in a broker that ends with this process; answers how many.
    async fn empty(&self, subscription: &mut Box<dyn Subscription>, phases: &Phases) -> usize {
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
                self.deps.targets.give_back(&Slot::of(message));
            }
            given_back += give_back(&self.deps, messages, &phases.give_up).await;
            deliveries.into_iter().for_each(Delivery::ack);
        }
        given_back
    }
}

/// The steps of the end. They follow each other by the clock, so that nothing that hangs holds them up.
struct Phases {
    /// Receive nothing more.
    shutdown: CancellationToken,
    /// Cut off what still runs.
    abort: CancellationToken,
    /// Do not ask the store again.
    give_up: CancellationToken,
    /// Ends the clockwork with the worker.
    _ended: tokio_util::sync::DropGuard,
}

impl Phases {
    fn new(shutdown: CancellationToken, drain: Duration, goodbye: Duration) -> Self {
        let (abort, give_up, ended) = (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let (first, second, third) = (shutdown.clone(), abort.clone(), give_up.clone());
        let steps = async move {
            first.cancelled().await;
            tokio::time::sleep(drain).await;
            second.cancel();
            tokio::time::sleep(goodbye).await;
            third.cancel();
        };
        tokio::spawn(ended.clone().run_until_cancelled_owned(steps));
        Self { shutdown, abort, give_up, _ended: ended.drop_guard() }
    }
}

/// A delivery that has not begun.
struct Received {
    delivery: Delivery,
    at_hand: AtHand,
}

/// What a run takes up.
struct AtHand {
    _slot: OwnedSemaphorePermit,
    place: TakenPlace,
}

/// A place at a target; dropped, it is given back.
struct TakenPlace {
    targets: Arc<Targets>,
    place: Slot,
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        self.targets.give_back(&self.place);
    }
}

/// The next delivery if there is one now.
async fn recv_now(subscription: &mut Box<dyn Subscription>) -> Option<Delivery> {
    tokio::select! {
        biased;
        delivery = subscription.recv() => delivery,
        () = std::future::ready(()) => None,
    }
}
