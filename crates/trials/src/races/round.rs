//! One round of a race: who meets, and the barrier at which they do.
//!
//! Contenders have connections of their own, open before the barrier. Behind it some are held up by the dice for a
//! moment, so that each of them is the first in some rounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use punctual_testkit::sink::Sink;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

use super::legal::Outcome;
use super::pulse::Pulse;
use crate::caller::{Ask, Caller, Held, Wish};
use crate::history::{Answer, Said};

/// A connection that was idle for longer may have been closed by the server meanwhile.
const IDLE: Duration = Duration::from_secs(3);
/// How long a worker waits for a task that must come.
const PATIENCE: Duration = Duration::from_secs(15);
/// For how long a worker leases what it will settle soon.
const LONG_LEASE: u64 = 60;
/// Between two looks at a task.
const LOOK: Duration = Duration::from_millis(5);

/// A place in which rounds are held, one after the other.
pub struct Round {
    /// What is drawn in this round.
    pub dice: StdRng,
    /// The key of this round's task.
    pub key: String,
    /// The queue of this place.
    pub queue: String,
    /// Where webhooks go.
    pub sink: Arc<Sink>,
    /// When the reaper was seen at work.
    pub pulse: Arc<Pulse>,
    seats: Vec<Seat>,
    jitter: Duration,
    spans: Vec<(Instant, Instant)>,
}

struct Seat {
    caller: Caller,
    used: Option<Instant>,
}

/// Two words for where a worker can settle: both must behave alike.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// In a batch of one.
    Batch,
    /// At the task's own address.
    Alone,
}

impl Way {
    /// Settles in this way.
    pub async fn settle(self, caller: &Caller, held: &Held, said: Said) -> Answer {
        match self {
            Way::Batch => caller.settle(held, said).await,
            Way::Alone => caller.settle_alone(held, said).await,
        }
    }
}

impl Round {
    /// A place with so many seats.
    pub async fn new(caller: &Caller, seats: usize, jitter: Duration, sink: Arc<Sink>, pulse: Arc<Pulse>) -> Self {
        let mut made = Vec::with_capacity(seats);
        for _ in 0..seats {
            made.push(Seat { caller: caller.apart().await, used: None });
        }
        let dice = StdRng::seed_from_u64(0);
        Self { dice, key: String::new(), queue: String::new(), sink, pulse, seats: made, jitter, spans: Vec::new() }
    }

    /// Makes ready for the next round.
    pub fn begin(&mut self, key: String, queue: &str, seed: u64) {
        self.key = key;
        queue.clone_into(&mut self.queue);
        self.dice = StdRng::seed_from_u64(seed);
        self.spans.clear();
    }

    /// The caller of a seat.
    pub fn seat(&self, number: usize) -> Caller {
        self.seats[number].caller.clone()
    }

    /// The instant in so many milliseconds.
    pub fn in_millis(&self, millis: i64) -> Timestamp {
        self.seats[0].caller.recorder().now().wall().plus_millis(millis)
    }

    /// A task for the worker of this place.
    pub fn wish(&self) -> Wish {
        Wish::new(&self.key, &self.queue)
    }

    /// Batch or alone, by the dice.
    pub fn way(&mut self) -> Way {
        if self.dice.random() { Way::Batch } else { Way::Alone }
    }

    /// Some milliseconds, by the dice.
    pub fn draw(&mut self, from: i64, to: i64) -> i64 {
        self.dice.random_range(from..to)
    }

    /// Two contenders, the first from seat 0 and the second from seat 1, at the same instant.
    pub async fn pair<A, B>(
        &mut self,
        first: impl Future<Output = A> + Send + 'static,
        second: impl Future<Output = B> + Send + 'static,
    ) -> (A, B)
    where
        A: Send + 'static,
        B: Send + 'static,
    {
        self.connect(2).await;
        let barrier = Arc::new(Barrier::new(2));
        let first = start(&barrier, self.hold_up(), first);
        let second = start(&barrier, self.hold_up(), second);
        let (first, second) = (ended(first).await, ended(second).await);
        self.spans = vec![first.1, second.1];
        (first.0, second.0)
    }

    /// Any number of contenders, each from the seat of its number, at the same instant.
    pub async fn all<T: Send + 'static>(
        &mut self,
        contenders: Vec<impl Future<Output = T> + Send + 'static>,
    ) -> Vec<T> {
        self.connect(contenders.len()).await;
        let barrier = Arc::new(Barrier::new(contenders.len()));
        let started: Vec<_> =
            contenders.into_iter().map(|contender| start(&barrier, self.hold_up(), contender)).collect();
        let mut all = Vec::with_capacity(started.len());
        self.spans.clear();
        for contender in started {
            let (said, span) = ended(contender).await;
            self.spans.push(span);
            all.push(said);
        }
        all
    }

    /// What a worker gets from this place's queue.
    pub async fn take(&self, seat: usize, worker: &str, wait: Duration, lease_seconds: u64) -> Option<Held> {
        self.poll(seat, worker, wait, lease_seconds).await
    }

    /// The same, to be sent off later.
    pub fn poll(
        &self,
        seat: usize,
        worker: &str,
        wait: Duration,
        lease_seconds: u64,
    ) -> impl Future<Output = Option<Held>> + Send + 'static {
        let (caller, worker, queue) = (self.seat(seat), worker.to_owned(), self.queue.clone());
        async move {
            let ask = Ask { worker: &worker, queues: &[&queue], most: 1, wait, lease_seconds };
            caller.lease(&ask).await.pop()
        }
    }

    /// What a worker gets that is sure to get something, for as long as it needs.
    pub async fn take_surely(&self, seat: usize, worker: &str) -> Option<Held> {
        self.take(seat, worker, PATIENCE, LONG_LEASE).await
    }

    /// Submits this round's task.
    pub async fn submit(&self, wish: &Wish) -> Option<TaskId> {
        self.seats[0].caller.submit_surely(wish).await
    }

    /// A task that worker A holds.
    pub async fn running(&self, lease_seconds: u64) -> Option<Held> {
        self.submit(&self.wish()).await?;
        self.take(0, "A", PATIENCE, lease_seconds).await
    }

    /// A task that worker A holds for as long as it needs.
    pub async fn running_long(&self) -> Option<Held> {
        self.running(LONG_LEASE).await
    }

    /// The task as the server shows it now.
    pub async fn read(&self, task: TaskId) -> Value {
        let reply = self.seats[0].caller.api().await.get(&format!("/v1/tasks/{task}")).await;
        reply.value()
    }

    /// The state of a task, and who completed it.
    pub async fn state(&self, task: TaskId) -> String {
        let task = self.read(task).await;
        let state = task["status"].as_str().unwrap_or("nothing");
        match task["result"]["by"].as_str() {
            Some(worker) => format!("{state} by {worker}"),
            None => state.to_owned(),
        }
    }

    /// The state of a task once it has come to rest, or after a while.
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

    /// Everybody who held the task says that it is done, whatever that is worth now; if it waits, worker Z does it.
    pub async fn finish(&self, task: TaskId, held: &[&Held]) {
        for held in held {
            self.seats[0].caller.settle_surely(held, Said::Completed).await;
        }
        if self.state(task).await == "PENDING"
            && let Some(held) = self.take_surely(0, "Z").await
        {
            self.seats[0].caller.settle_surely(&held, Said::Completed).await;
        }
    }

    /// What came of the round.
    pub fn outcome(&self, task: TaskId, told: impl IntoIterator<Item = String>, end: String) -> Outcome {
        let last_began = self.spans.iter().map(|span| span.0).max();
        let first_ended = self.spans.iter().map(|span| span.1).min();
        let first = self.spans.iter().position(|span| Some(span.1) == first_ended).unwrap_or(0);
        let told = told.into_iter().collect();
        Outcome { told, end, first, raced: last_began < first_ended, task: Some(task) }
    }

    /// The round could not be held: a task that was to be had was not.
    pub fn never_began(&self) -> Outcome {
        Outcome { told: Vec::new(), end: "the race never began".to_owned(), first: 0, raced: false, task: None }
    }

    async fn connect(&mut self, seats: usize) {
        for seat in &mut self.seats[..seats] {
            if seat.used.is_none_or(|used| used.elapsed() > IDLE) {
                seat.caller.connect().await;
            }
            seat.used = Some(Instant::now());
        }
    }

    /// How long a contender is held up behind the barrier: mostly not at all.
    fn hold_up(&mut self) -> Duration {
        if self.dice.random_ratio(1, 3) { self.jitter.mul_f64(self.dice.random()) } else { Duration::ZERO }
    }
}

type Started<T> = JoinHandle<(T, (Instant, Instant))>;

fn start<T: Send + 'static>(
    barrier: &Arc<Barrier>,
    held_up: Duration,
    contender: impl Future<Output = T> + Send + 'static,
) -> Started<T> {
    let barrier = Arc::clone(barrier);
    tokio::spawn(async move {
        barrier.wait().await;
        hold_up(held_up).await;
        let began = Instant::now();
        let said = contender.await;
        (said, (began, Instant::now()))
    })
}

async fn ended<T>(started: Started<T>) -> (T, (Instant, Instant)) {
    started.await.expect("a contender does not panic")
}

/// Waits for less than the timer can tell.
async fn hold_up(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        tokio::task::yield_now().await;
    }
}
