//! The worker role with a broker: receives messages and starts their runs, in batches.
//!
//! [`Executor::begin`](crate::executor::Executor::begin) is the rest of a run. A received message
//! takes a call slot, which bounds all calls together. The store starts all waiting runs in one
//! call, and then the messages are acknowledged. Invariant: from then on the task's hold protects
//! the run, not the broker.
//!
//! The shutdown has phases, by the clock. First the loop receives nothing more: what is in the
//! broker is for another node. After the drain it aborts the calls and gives them back. It still
//! settles runs until the flush is over. Then [`Consumer::run`] returns.

use std::sync::Arc;

use punctual_core::broker::{Broker, Delivery, Message, Subscription};
use punctual_core::store::Start;
use punctual_core::time::millis;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::executor::StartedRun;
use crate::retry::{PAUSES, RetryError, retry};
use crate::runs::{RunningWebhooks, WebhookRuns};
use crate::shutdown::ShutdownPhases;
use crate::slots::TargetSlot;
use crate::{Config, Deps, Report};

/// The maximum number of runs that are started in one call. Messages that arrive meanwhile wait for
/// it, and the store serves a small call before large ones.
const START_MAX: usize = 64;

/// The worker role with a broker (see the module).
pub struct Consumer {
    deps: Deps,
    broker: Arc<dyn Broker>,
    config: Config,
}

impl Consumer {
    /// A worker that consumes `broker`.
    pub fn new(deps: Deps, broker: Arc<dyn Broker>, config: Config) -> Self {
        Self { deps, broker, config }
    }

    /// Runs until `shutdown` is cancelled or the broker is closed; returns when every run is
    /// settled.
    pub async fn run(self, shutdown: CancellationToken) -> Report {
        let runs = WebhookRuns::new(&self.deps, &self.config).begin(&self.config, shutdown);
        if let Some(mut subscription) = self.subscribe(&runs.phases).await {
            self.consume(&mut subscription, &runs).await;
        }
        runs.end().await
    }

    /// The run of a webhook: receive → start → call → judge → settle. The last three are
    /// [`Executor::begin`](crate::executor::Executor::begin), which runs as a task of its own.
    async fn consume(&self, subscription: &mut Box<dyn Subscription>, runs: &RunningWebhooks) {
        loop {
            let received = tokio::select! {
                biased;
                () = runs.phases.shutdown.cancelled() => return,
                received = self.receive(subscription, &runs.call_slots) => received,
            };
            let Some(received) = received else { return };
            runs.run(self.start(received, &runs.phases).await);
        }
    }

    /// Waits for a call slot and a message, and adds the messages that wait already. None when the
    /// broker was closed. Dropping the future loses nothing: it does not wait once it has a
    /// message.
    async fn receive(
        &self,
        subscription: &mut Box<dyn Subscription>,
        call_slots: &Arc<Semaphore>,
    ) -> Option<Vec<ReceivedMessage>> {
        let call_slot = Arc::clone(call_slots).acquire_owned().await.ok()?;
        let mut received = vec![self.received(subscription.recv().await?, call_slot)];
        while received.len() < self.batch().min(START_MAX)
            && let Ok(call_slot) = Arc::clone(call_slots).try_acquire_owned()
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
        let clock = &self.deps.clock;
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
                        started
                            .extend(task.map(|task| StartedRun::new(task, clock.now(), Some(call_slot), target_slot)));
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

    /// None if the shutdown began before the broker answered.
    async fn subscribe(&self, phases: &ShutdownPhases) -> Option<Box<dyn Subscription>> {
        for failures in 1.. {
            match self.broker.subscribe(&self.config.pool, self.batch()).await {
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

    fn batch(&self) -> usize {
        self.config.batch.max(1)
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
