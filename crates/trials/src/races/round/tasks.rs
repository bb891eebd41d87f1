//! The task of a round: preparing it for the race, reading it, and finishing it.

use std::pin::Pin;
use std::time::{Duration, Instant};

use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use rand::RngExt;
use serde_json::Value;

use super::Round;
use crate::caller::{Caller, HeldLease, Wish, WorkerPoll};
use crate::history::{CallAnswer, WorkerReport};

/// How long a worker waits for a task that must come.
const PATIENCE: Duration = Duration::from_secs(15);
/// The lease of a worker that will settle soon, in seconds.
const LONG_LEASE: u64 = 60;
/// More heartbeats than the server writes in that time.
const FLOOD: usize = 14;
/// The pause between two reads of a task.
const LOOK: Duration = Duration::from_millis(5);

impl Round {
    /// A task for the worker of this place.
    pub fn wish(&self) -> Wish {
        Wish::new(&self.key, &self.queue)
    }

    /// Polls for a task of this place's queue.
    pub async fn take(&self, seat: usize, worker: &str, wait: Duration, lease_seconds: u64) -> Option<HeldLease> {
        self.poll(seat, worker, wait, lease_seconds).await
    }

    /// The same call, to be sent later.
    pub fn poll(
        &self,
        seat: usize,
        worker: &str,
        wait: Duration,
        lease_seconds: u64,
    ) -> impl Future<Output = Option<HeldLease>> + Send + use<> {
        let (caller, worker, queue) = (self.seat(seat), worker.to_owned(), self.queue.clone());
        async move {
            let ask = WorkerPoll { worker: &worker, queues: &[&queue], most: 1, wait, lease_seconds };
            caller.lease(&ask).await.pop()
        }
    }

    /// The report of a worker, by one of two routes at random, to be sent later.
    pub fn settling(
        &mut self,
        seat: usize,
        held: &HeldLease,
        report: WorkerReport,
    ) -> Pin<Box<dyn Future<Output = CallAnswer> + Send>> {
        let (way, caller, held) = (self.way(), self.seat(seat), held.clone());
        Box::pin(async move { way.settle(&caller, &held, report).await })
    }

    /// Batch or alone, at random.
    fn way(&mut self) -> SettleRoute {
        if self.dice.random() { SettleRoute::Batch } else { SettleRoute::Alone }
    }

    /// Polls for a task that must come, with a long lease.
    pub async fn take_surely(&self, seat: usize, worker: &str) -> Option<HeldLease> {
        self.take(seat, worker, PATIENCE, LONG_LEASE).await
    }

    /// Submits this round's task.
    pub async fn submit(&self, wish: &Wish) -> Option<TaskId> {
        self.seats[0].caller.submit_surely(wish).await
    }

    /// A task that worker A holds for a second.
    pub async fn running_shortly(&self, wish: &Wish) -> Option<HeldLease> {
        self.running_for(wish, 1).await
    }

    /// A task that worker A holds for this many seconds.
    pub async fn running_for(&self, wish: &Wish, seconds: u64) -> Option<HeldLease> {
        self.submit(wish).await?;
        self.take(0, "A", PATIENCE, seconds).await
    }

    /// A task that worker A holds for as long as it needs.
    pub async fn running(&self) -> Option<HeldLease> {
        self.submit(&self.wish()).await?;
        self.take_surely(0, "A").await
    }

    /// Too many heartbeats of worker A: the server need not write each of them.
    pub async fn flood(&self, held: &HeldLease) {
        // In few calls, so that they arrive quickly on a busy machine too.
        for beats in [1, FLOOD] {
            self.seats[0].caller.settle_all(&vec![(held.clone(), WorkerReport::Heartbeat); beats]).await;
        }
    }

    /// The task as the server shows it now.
    pub async fn read(&self, task: TaskId) -> Value {
        let reply = self.seats[0].caller.api().await.get(&format!("/v1/tasks/{task}")).await;
        reply.value()
    }

    /// The state of a task, and the worker that completed it.
    pub async fn state(&self, task: TaskId) -> String {
        let task = self.read(task).await;
        let state = task["status"].as_str().unwrap_or("nothing");
        match task["result"]["by"].as_str() {
            Some(worker) => format!("{state} by {worker}"),
            None => state.to_owned(),
        }
    }

    /// The state of a task once it has finished, or when the wait is over.
    pub async fn rest(&self, task: TaskId) -> String {
        let begun = Instant::now();
        loop {
            let state = self.state(task).await;
            let under_way = ["PENDING", "QUEUED", "RUNNING"].contains(&state.as_str());
            if !under_way || begun.elapsed() > PATIENCE {
                return state;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The trail of a task in a line, for evidence.
    pub async fn trail(&self, task: TaskId) -> String {
        let events = self.events(task).await;
        let step = |event: &Value| {
            let word = |field: &str| event[field].as_str().unwrap_or("?").to_owned();
            format!("{} {} → {} at {}", event["version"], word("reason"), word("to"), word("at"))
        };
        events.iter().map(step).collect::<Vec<_>>().join(" · ")
    }

    async fn events(&self, task: TaskId) -> Vec<Value> {
        let path = format!("/v1/tasks/{task}/events?limit=100");
        let events = self.seats[0].caller.api().await.get(&path).await.value();
        events["items"].as_array().cloned().unwrap_or_default()
    }

    /// Records the reaper's pass that took this task back.
    pub async fn notice_reaper(&self, task: TaskId) {
        let events = self.events(task).await;
        let lost = events.iter().find(|event| event["reason"] == "worker_lost");
        if let Some(at) = lost.and_then(|event| Timestamp::parse(event["at"].as_str()?).ok()) {
            self.pulse.seen(at);
        }
    }

    /// All holders report the task as completed, with or without effect. If it waits, worker Z
    /// completes it.
    pub async fn finish(&self, task: TaskId, held: &[&HeldLease]) {
        for held in held {
            self.seats[0].caller.settle_surely(held, WorkerReport::Completed).await;
        }
        if self.state(task).await == "PENDING"
            && let Some(held) = self.take_surely(0, "Z").await
        {
            self.seats[0].caller.settle_surely(&held, WorkerReport::Completed).await;
        }
    }
}

/// Where a worker settles. Both routes must behave alike.
#[derive(Clone, Copy, Debug)]
enum SettleRoute {
    /// In a batch of one.
    Batch,
    /// At the task's own address.
    Alone,
}

impl SettleRoute {
    /// Settles by this route.
    async fn settle(self, caller: &Caller, held: &HeldLease, report: WorkerReport) -> CallAnswer {
        match self {
            SettleRoute::Batch => caller.settle(held, report).await,
            SettleRoute::Alone => caller.settle_alone(held, report).await,
        }
    }
}
