//! One round of a race: its contenders, and the barrier where they meet.
//!
//! Contenders have their own connections, open before the barrier. Behind it a random delay holds
//! some of them up, so that each of them is first in some rounds.

mod barrier;
mod tasks;

use std::sync::Arc;
use std::time::{Duration, Instant};

use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
use punctual_testkit::sink::Sink;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::sync::Barrier;

use self::barrier::{ended, start};
use super::legal::RoundOutcome;
use super::pulse::LastVisit;
use crate::caller::Caller;

/// A connection that was idle for longer may have been closed by the server meanwhile.
const IDLE: Duration = Duration::from_secs(3);

/// A place in which rounds run, one after the other.
pub struct Round {
    /// The random numbers of this round.
    pub dice: StdRng,
    /// The key of this round's task.
    pub key: String,
    /// The queue of this place.
    pub queue: String,
    /// Where webhooks go.
    pub sink: Arc<Sink>,
    /// When the reaper was last seen.
    pub pulse: Arc<LastVisit>,
    seats: Vec<Seat>,
    jitter: Duration,
    spans: Vec<(Instant, Instant)>,
}

struct Seat {
    caller: Caller,
    used: Option<Instant>,
}

impl Round {
    /// A place with this many seats.
    pub async fn new(caller: &Caller, seats: usize, jitter: Duration, sink: Arc<Sink>, pulse: Arc<LastVisit>) -> Self {
        let mut made = Vec::with_capacity(seats);
        for _ in 0..seats {
            made.push(Seat { caller: caller.apart().await, used: None });
        }
        let dice = StdRng::seed_from_u64(0);
        Self { dice, key: String::new(), queue: String::new(), sink, pulse, seats: made, jitter, spans: Vec::new() }
    }

    /// Prepares the next round.
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

    /// The instant in this many milliseconds.
    pub fn in_millis(&self, millis: i64) -> Timestamp {
        self.seats[0].caller.recorder().now().wall().plus_millis(millis)
    }

    /// A random instant `from` to `to` milliseconds from now.
    pub fn soon(&mut self, from: i64, to: i64) -> Timestamp {
        let millis = self.draw(from, to);
        self.in_millis(millis)
    }

    /// A random number of milliseconds.
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
        let first = start(&barrier, self.hold_up(2), first);
        let second = start(&barrier, self.hold_up(2), second);
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
        let count = contenders.len();
        let started: Vec<_> =
            contenders.into_iter().map(|contender| start(&barrier, self.hold_up(count), contender)).collect();
        let mut all = Vec::with_capacity(count);
        self.spans.clear();
        for contender in started {
            let (answer, span) = ended(contender).await;
            self.spans.push(span);
            all.push(answer);
        }
        all
    }

    /// A call that is made at an instant, to within a millisecond, or at once.
    pub fn at<T, C, F>(
        &self,
        seat: usize,
        moment: Option<Timestamp>,
        call: C,
    ) -> impl Future<Output = T> + Send + use<T, C, F>
    where
        C: FnOnce(Caller) -> F + Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let caller = self.seat(seat);
        async move {
            if let Some(moment) = moment {
                tokio::time::sleep(moment.duration_from(caller.recorder().now().wall())).await;
            }
            call(caller).await
        }
    }

    /// The outcome of the round.
    pub fn outcome(&self, task: TaskId, answers: impl IntoIterator<Item = String>, end: String) -> RoundOutcome {
        let first_ended = self.spans.iter().map(|span| span.1).min();
        let first = self.spans.iter().position(|span| Some(span.1) == first_ended).unwrap_or(0);
        let mut spans = self.spans.clone();
        spans.sort_unstable();
        let raced = spans.windows(2).any(|pair| pair[1].0 < pair[0].1);
        RoundOutcome { answers: answers.into_iter().collect(), end, first, raced, task: Some(task) }
    }

    async fn connect(&mut self, seats: usize) {
        for seat in &mut self.seats[..seats] {
            if seat.used.is_none_or(|used| used.elapsed() > IDLE) {
                seat.caller.connect().await;
            }
            seat.used = Some(Instant::now());
        }
    }

    /// How long a contender is delayed behind the barrier. Usually zero; with many contenders,
    /// nearly always.
    fn hold_up(&mut self, contenders: usize) -> Duration {
        let held_up = self.dice.random_range(0..contenders.max(5)) < 2;
        if held_up { self.jitter.mul_f64(self.dice.random()) } else { Duration::ZERO }
    }
}
