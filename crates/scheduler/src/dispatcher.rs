//! The dispatcher: brings due tasks and their claimants together.
//!
//! One loop owns the board (which lanes are due) and the waiters (which workers want
//! what). A turn takes in what has happened — workers that ask, hints of fresh tasks,
//! lanes whose time has come — and then claims for everybody who can be served: pull
//! workers get their tasks `RUNNING`, pushed tasks go `QUEUED` to the broker. Claims of
//! different tenants are under way side by side (`flights`); those of one tenant follow
//! each other, so a claim's answer is never older than the hints taken in after it. Who
//! goes first where not everybody can is for `fairness` to say.
//!
//! Whatever is lost here, by a crash between any two lines, is found by the sweep (not
//! claimed) or by the reaper (claimed and not started).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use punctual_core::broker::{Broker, WEBHOOK_POOL};
use punctual_core::clock::Clock;
use punctual_core::ids::NodeId;
use punctual_core::lane::{Lane, LaneId};
use punctual_core::state::{By, Event, transition};
use punctual_core::store::{Claimed, MOST_AHEAD_MILLIS, Store, StoreError};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use punctual_core::trail::Actor;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backlog::Backlog;
use crate::board::{Board, Shelf};
use crate::breakers::{Circuits, EndedRun, OpenSet};
use crate::broken::Broken;
use crate::desk::{Counter, Desk, DeskError, Handout, Trouble, Waiting};
use crate::fairness::{self, Aging, Band, LongestWaits, Rounds, Tenants};
use crate::gated::Gated;
use crate::hints::Hints;
use crate::ownership::Owned;
use crate::targets::Targets;
use crate::waiters::{Waiters, shelves};

mod flights;
mod held;
mod plan;
mod probes;
mod pull;
mod push;
mod split;

use flights::{Flight, Flights, Landed};
use push::AfterLive;
use split::Bands;

/// How the dispatcher works.
#[derive(Clone, Debug)]
pub struct Config {
    /// Lanes due within this are kept in memory.
    pub prefetch_window: Duration,
    /// How often every lane is looked for in the store.
    pub sweep_interval: Duration,
    /// What pull workers wait for is claimed so long before it is due, and given to them when it is: by then it is
    /// written. Zero means when it is due.
    pub claim_ahead: Duration,
    /// At most how many tasks a turn claims.
    pub claim_batch: usize,
    /// How long a published task may stay unstarted.
    pub visibility: Duration,
    /// How many pull workers may wait.
    pub waiting_workers: usize,
    /// How many pushed tasks that were due before this node owned them it claims in a second; zero means any number.
    pub backlog_per_second: u32,
    /// How tenants and bands share what is claimed.
    pub fairness: fairness::Config,
}

/// What the dispatcher works with.
#[derive(Clone)]
pub struct Deps {
    /// The truth.
    pub store: Arc<dyn Store>,
    /// Where pushed tasks go.
    pub broker: Arc<dyn Broker>,
    /// The store's clock.
    pub clock: Arc<dyn Clock>,
    /// Hints from the writers.
    pub hints: Arc<Hints>,
    /// The places of webhook targets.
    pub targets: Arc<Targets>,
    /// The partitions whose webhooks this node dispatches.
    pub owned: Arc<Owned>,
    /// The breakers.
    pub circuits: Arc<Circuits>,
    /// Where it tells for how long each band has waited.
    pub waits: Arc<LongestWaits>,
    /// This process.
    pub node: NodeId,
}

/// See the module.
pub struct Dispatcher {
    deps: Deps,
    config: Config,
    asks: mpsc::Receiver<Waiting>,
    trouble: watch::Sender<Trouble>,
    /// What was claimed for workers that hung up, on its way back and arrived.
    returned: mpsc::UnboundedReceiver<Vec<Task>>,
    returns: mpsc::UnboundedSender<Vec<Task>>,
    abandoned: Vec<Task>,
    board: Board,
    /// Lanes with pushed tasks that were due before this node owned them.
    backlog: Backlog,
    /// Lanes whose queues let nothing through.
    gated: Gated,
    /// The breakers that are open, as the lanes are sorted by, and those that are under them.
    breakers: Arc<OpenSet>,
    broken: Broken,
    /// When it is looked next whether a probe can be made.
    next_probes: Instant,
    /// Probes in a row whose queues let nothing through.
    probes_in_vain: u32,
    /// Queues that may let something through again, as was heard while claims were under way.
    freed: HashSet<(String, String)>,
    freed_everywhere: bool,
    /// The generation of what is owned that the board was made for.
    generation: u64,
    waiters: Waiters,
    /// Claims under way, and those that have landed and nobody has looked at yet.
    flights: Flights,
    landed: Vec<Landed>,
    /// What was heard of lanes that claims are at.
    heard: HashMap<LaneId, (Arc<Lane>, Timestamp)>,
    aging: Aging,
    pulling_tenants: Tenants,
    push_rounds: Rounds,
    pull_bands: Bands,
    push_bands: Bands,
    found_bands: Bands,
    /// The tenants with whom the last turns ended, where there are many.
    last_pushed: String,
    last_found: String,
    /// What is left of a turn of pushes, once its live part has landed.
    after_live: Option<AfterLive>,
    /// Shelves where a ready lane and a claimant may meet.
    open: HashSet<Shelf>,
    /// Workers that want an answer at once, even if it is nothing.
    impatient: Vec<u64>,
    /// Ready push lanes found no place or no room in the last turn.
    push_blocked: bool,
    /// It was for want of places, not of room.
    places_full: bool,
    /// Where the sweep goes on; none when it begins anew.
    sweep_after: Option<LaneId>,
    next_sweep: Instant,
    /// Claims in a row that took nothing although something was due, and when to try again.
    in_vain: u32,
    look_again_at: Option<Instant>,
    failures: u32,
}

/// What a turn did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Tasks handed to pull workers.
    pub pulled: usize,
    /// Tasks published for webhook workers.
    pub pushed: usize,
    /// Whether there is more to do at once.
    pub more: bool,
}

/// Lanes read from the store in one page of the sweep.
const SWEEP_PAGE: usize = 1_000;
/// No wait is longer than this, whatever the clocks say.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// After a claim in vain the next one comes so soon, and twice as late after each that follows it …
const AGAIN: Duration = Duration::from_millis(4);
/// … so many times.
const MOST_IN_VAIN: u32 = 8;

impl Dispatcher {
    /// A dispatcher and the desk it sits at.
    pub fn new(deps: Deps, config: Config) -> (Self, Desk) {
        let (desk, Counter { asks, trouble }) = Desk::new(config.waiting_workers);
        let (returns, returned) = mpsc::unbounded_channel();
        let window = i64::try_from(config.prefetch_window.as_millis()).unwrap_or(i64::MAX);
        let ahead = i64::try_from(config.claim_ahead.as_millis()).unwrap_or(i64::MAX).min(MOST_AHEAD_MILLIS);
        let fairness = config.fairness.clone();
        let dispatcher = Self {
            board: Board::new(window).ahead(ahead),
            backlog: Backlog::new(config.backlog_per_second, Instant::now()),
            gated: Gated::default(),
            breakers: Arc::default(),
            broken: Broken::default(),
            next_probes: Instant::now(),
            probes_in_vain: 0,
            freed: HashSet::new(),
            freed_everywhere: false,
            generation: deps.owned.generation(),
            deps,
            config,
            asks,
            trouble,
            returned,
            returns,
            abandoned: Vec::new(),
            waiters: Waiters::default(),
            flights: Flights::default(),
            landed: Vec::new(),
            heard: HashMap::new(),
            aging: Aging::new(fairness.aging),
            pulling_tenants: Tenants::new(fairness.tenants.clone()),
            push_rounds: Rounds::new(fairness.tenants),
            pull_bands: Bands::new(fairness.bands),
            push_bands: Bands::new(fairness.bands),
            found_bands: Bands::new(fairness.bands),
            last_pushed: String::new(),
            last_found: String::new(),
            after_live: None,
            open: HashSet::new(),
            impatient: Vec::new(),
            push_blocked: false,
            places_full: false,
            sweep_after: None,
            next_sweep: Instant::now(),
            in_vain: 0,
            look_again_at: None,
            failures: 0,
        };
        (dispatcher, desk)
    }

    /// Works until told to stop; then answers every waiting worker with nothing.
    pub async fn run(mut self, shutdown: CancellationToken) {
        loop {
            let more = match self.run_once().await {
                Ok(report) => {
                    self.failures = 0;
                    report.more
                }
                Err(error) => {
                    self.failures = self.failures.saturating_add(1);
                    if self.failures == 1 {
                        tracing::error!(error = %error, "cannot claim tasks, trying again");
                    }
                    false
                }
            };
            if shutdown.is_cancelled() {
                break;
            }
            if more {
                tokio::task::yield_now().await;
            } else {
                tokio::select! {
                    () = self.something_happens() => {}
                    () = shutdown.cancelled() => {}
                }
            }
        }
        while !self.flights.is_empty() || !self.landed.is_empty() {
            // Whatever fails is found again by the next node.
            drop(self.land(&mut Report::default()).await);
        }
        self.asks.close();
        while let Ok(waiting) = self.asks.try_recv() {
            self.waiters.add(waiting);
        }
        for waiting in self.waiters.drain() {
            waiting.answer(Ok(Handout::new(Vec::new(), self.returns.clone())));
        }
        self.give_back_abandoned().await;
    }

    /// One turn: takes in what has happened, claims for whom it can, and serves those whose claims land first.
    pub async fn run_once(&mut self) -> Result<Report, StoreError> {
        let turn = self.turn().await;
        self.dismiss_the_impatient(turn.as_ref().err());
        self.tell_of_trouble(turn.as_ref().err());
        turn
    }

    /// Who waits in vain because of the store must not be told that there was nothing to do.
    fn tell_of_trouble(&self, failure: Option<&StoreError>) {
        if self.trouble.borrow().is_some() || failure.is_some() {
            self.trouble.send_replace(failure.cloned());
        }
    }

    async fn turn(&mut self) -> Result<Report, StoreError> {
        let mut report = Report::default();
        loop {
            self.look_around().await?;
            self.launch_pulls();
            self.launch_push().await;
            self.launch_probes().await;
            self.tell_waits();
            if self.flights.is_empty() && self.landed.is_empty() {
                break;
            }
            self.dismiss_the_impatient(None);
            if self.something_lands().await {
                self.land(&mut report).await?;
                break;
            }
        }
        report.more |= !self.flights.is_empty() || !self.landed.is_empty() || self.after_live.is_some();
        Ok(report)
    }

    /// Takes in what has happened.
    async fn look_around(&mut self) -> Result<(), StoreError> {
        // Asks before hints: who has been told that a task is stored must find it.
        while let Ok(waiting) = self.asks.try_recv() {
            self.take_in(waiting);
        }
        self.give_back_abandoned().await;
        self.keep_what_concerns_us();
        self.mind_breakers();
        for (lane, due_at) in self.deps.hints.take() {
            self.hear(&lane, due_at);
        }
        self.let_go();
        if self.deps.hints.take_everywhere() {
            (self.sweep_after, self.next_sweep) = (None, Instant::now());
        }
        if Instant::now() >= self.next_sweep {
            self.sweep().await?;
        }
        self.look_again_at = self.look_again_at.filter(|at| *at > Instant::now());
        self.board.advance(self.deps.clock.now());
        self.open.extend(self.board.take_stirred());
        Ok(())
    }

    /// A task of this lane waits and is due then. While a claim is at the lane that waits: its answer may be older.
    fn hear(&mut self, lane: &Arc<Lane>, due_at: Timestamp) {
        if self.flights.is_at(&lane.key) {
            let earliest = |(_, known): &mut (Arc<Lane>, Timestamp)| *known = due_at.min(*known);
            self.heard.entry(lane.id).and_modify(earliest).or_insert_with(|| (Arc::clone(lane), due_at));
        } else if self.deps.owned.concerns(&lane.key) {
            self.note(lane, due_at, self.deps.clock.now());
        }
    }

    /// Waits until a claim lands, or something happens that may be dealt with meanwhile; answers whether one has.
    async fn something_lands(&mut self) -> bool {
        if !self.landed.is_empty() {
            return true;
        }
        let deps = &self.deps;
        let next = self.board.next_wakeup().into_iter().chain(self.gated.next_wakeup()).min();
        let until_due = next.map(|at| at.duration_from(deps.clock.now()));
        let until_due = until_due.into_iter().chain(self.until_again()).min();
        let is_due = async {
            match until_due {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        let can_push = self.push_blocked && !self.flights.is_pushing();
        tokio::select! {
            biased;
            landed = self.flights.next() => {
                self.landed.push(landed);
                return true;
            }
            Some(waiting) = self.asks.recv() => self.take_in(waiting),
            Some(abandoned) = self.returned.recv() => self.abandoned.extend(abandoned),
            () = deps.hints.wait() => {}
            () = deps.owned.wait() => {}
            () = deps.targets.wait_for_place(), if can_push => {}
            () = deps.broker.wait_for_room(WEBHOOK_POOL), if can_push && !self.places_full => {}
            () = is_due => {}
        }
        false
    }

    /// Takes in what has landed, and waits for it if nothing has.
    async fn land(&mut self, report: &mut Report) -> Result<(), StoreError> {
        if self.landed.is_empty() {
            let landed = self.flights.next().await;
            self.landed.push(landed);
        }
        let mut failure = None;
        for (flight, answers) in std::mem::take(&mut self.landed) {
            let answers = answers.inspect_err(|error| failure = Some(error.clone())).ok();
            match (flight, answers) {
                (Flight::Pull { claims, workers, .. }, Some(answers)) => self.pulled(&claims, workers, answers, report),
                (Flight::Push(claims), Some(answers)) => self.pushed(&claims, answers, report).await,
                (Flight::Backlog(claims), Some(answers)) => self.pushed_backlog(&claims, answers, report).await,
                (Flight::Probe { lane, worker }, Some(answers)) => self.probed(&lane, worker, answers, report).await,
                // Who was not served keeps its place and looks again.
                (Flight::Probe { .. }, None) => {}
                (Flight::Pull { claims, .. }, None) => self.pull_bands.settle_failed(&claims, &self.board),
                (Flight::Push(claims), None) => self.push_bands.settle_failed(&claims, &self.board),
                (Flight::Backlog(claims), None) => self.found_bands.settle_failed(&claims, &self.board),
            }
        }
        for (lane, due_at) in std::mem::take(&mut self.heard).into_values() {
            self.hear(&lane, due_at);
        }
        failure.map_or(Ok(()), Err)
    }

    /// Tells since when the bands wait.
    fn tell_waits(&self) {
        for band in Band::ALL {
            let (ready, found) = (self.board.waits_since(band), self.backlog.waits_since(band));
            self.deps.waits.since(band, ready.into_iter().chain(found).min());
        }
    }

    /// When other partitions are owned than before: forgets the lanes of those that are not, and looks for the others.
    fn keep_what_concerns_us(&mut self) {
        let generation = self.deps.owned.generation();
        if generation != self.generation {
            self.generation = generation;
            self.board.retain(|lane| self.deps.owned.concerns(lane));
            self.backlog.retain(|lane| self.deps.owned.concerns(lane));
            self.gated.retain(|lane| self.deps.owned.concerns(lane));
            self.broken.take_if(|lane| !self.deps.owned.concerns(lane));
            (self.sweep_after, self.next_sweep) = (None, Instant::now());
        }
    }

    /// What a claim tells about the lanes; whether that moved anything.
    fn learn(&mut self, answer: &Claimed) -> bool {
        let now = self.deps.clock.now();
        let mut moved = !answer.tasks.is_empty();
        for (lane, head) in &answer.next_due {
            self.board.correct(*lane, *head, now);
            moved |= !self.board.is_ready(*lane);
        }
        self.hold_back(answer);
        moved |= !answer.limited.is_empty();
        if moved {
            self.in_vain = 0;
        } else if !answer.next_due.is_empty() {
            // Somebody else has it in hand, or it came to be due while the claim was under way.
            self.look_again_at = Some(Instant::now() + AGAIN * 2_u32.pow(self.in_vain));
            self.in_vain = (self.in_vain + 1).min(MOST_IN_VAIN);
        }
        moved
    }

    /// Looks for lanes that no hint told of: written by others, or due beyond the window when they were hinted.
    async fn sweep(&mut self) -> Result<(), StoreError> {
        self.waiters.sweep();
        self.next_sweep = Instant::now() + self.config.sweep_interval;
        let (is_whole, mut found) = (self.sweep_after.is_none(), HashSet::new());
        loop {
            let now = self.deps.clock.now();
            let window = i64::try_from(self.config.prefetch_window.as_millis()).unwrap_or(i64::MAX);
            let heads = self.deps.store.heads(self.sweep_after, now.plus_millis(window), SWEEP_PAGE).await?;
            let owned = Arc::clone(&self.deps.owned);
            for head in heads.iter().filter(|head| owned.concerns(&head.lane.key)) {
                found.insert(head.lane.id);
                if self.flights.is_at(&head.lane.key) {
                    self.hear(&head.lane, head.due_at);
                } else if self.breakers.is_over(&head.lane.key) {
                    self.note_broken(&head.lane, head.due_at, now);
                } else if !self.gated.note(head.lane.id, head.due_at) {
                    self.board.found(&head.lane, head.due_at, now);
                }
            }
            self.sweep_after = heads.last().filter(|_| heads.len() == SWEEP_PAGE).map(|head| head.lane.id);
            if self.sweep_after.is_none() {
                break;
            }
        }
        if is_whole {
            self.board.found_no_others(&found, |lane| self.flights.is_at(lane));
        }
        Ok(())
    }

    /// Returns when a turn may have something to do. Dropping it loses nothing: it does not wait once it has taken
    /// something in.
    async fn something_happens(&mut self) {
        let waits = self.longest_wait();
        let deps = &self.deps;
        let blocked = self.push_blocked && self.failures == 0;
        tokio::select! {
            landed = self.flights.next(), if !self.flights.is_empty() => self.landed.push(landed),
            Some(waiting) = self.asks.recv() => self.take_in(waiting),
            Some(abandoned) = self.returned.recv() => self.abandoned.extend(abandoned),
            () = deps.hints.wait() => {}
            () = deps.owned.wait() => {}
            () = deps.targets.wait_for_place(), if blocked => {}
            () = deps.broker.wait_for_room(WEBHOOK_POOL), if blocked && !self.places_full => {}
            () = tokio::time::sleep(waits) => {}
        }
    }

    fn longest_wait(&self) -> Duration {
        if self.failures > 0 {
            let backoff = Duration::from_millis(25) * 2_u32.pow(self.failures.min(5));
            return backoff.mul_f64(0.5 + rand::random::<f64>() / 2.0);
        }
        let until_sweep = self.next_sweep.saturating_duration_since(Instant::now());
        let now = self.deps.clock.now();
        let next = self.board.next_wakeup().into_iter().chain(self.gated.next_wakeup()).min();
        let until_due = next.map_or(MAX_WAIT, |at| at.duration_from(now));
        let until_tokens = self.backlog.wait(Instant::now()).unwrap_or(MAX_WAIT);
        let until_probes = self.until_probes(now).unwrap_or(MAX_WAIT);
        let until_again = self.until_again().unwrap_or(MAX_WAIT);
        until_sweep.min(until_due).min(until_tokens).min(until_probes).min(until_again).min(MAX_WAIT)
    }

    fn until_again(&self) -> Option<Duration> {
        self.look_again_at.map(|at| at.saturating_duration_since(Instant::now()))
    }

    fn take_in(&mut self, waiting: Waiting) {
        if self.waiters.len() >= self.config.waiting_workers {
            return waiting.answer(Err(DeskError::Crowded));
        }
        self.open.extend(shelves(&waiting));
        self.may_probe(&waiting.ask.tenant);
        let impatient = waiting.ask.wait.is_zero();
        let worker = self.waiters.add(waiting);
        if impatient {
            self.impatient.push(worker);
        }
    }

    async fn give_back_abandoned(&mut self) {
        while let Ok(tasks) = self.returned.try_recv() {
            self.abandoned.extend(tasks);
        }
        let (abandoned, now) = (std::mem::take(&mut self.abandoned), self.deps.clock.now());
        self.give_back(abandoned, now).await;
    }

    /// Gives claimed tasks back that nobody takes; they are not counted as attempts.
    async fn give_back(&self, tasks: Vec<Task>, due_at: Timestamp) {
        if tasks.is_empty() {
            return;
        }
        let now = self.deps.clock.now();
        let back = |task: &Task| {
            // What was claimed ahead of its time is not due before it, and its run does not end before it began.
            let by = By { now: now.max(task.due_at), node: self.deps.node, actor: Actor::Scheduler };
            let event = Event::GiveBack(due_at.max(task.due_at));
            Some((task.id, transition(&task.position, event, &by).ok()?))
        };
        let changes = tasks.iter().filter_map(back).collect();
        if let Err(error) = self.deps.store.apply(changes).await {
            tracing::warn!(error = %error, "could not give tasks back; the reaper will");
            return;
        }
        self.deps.circuits.count(tasks.iter().map(EndedRun::given_back));
    }
}

impl Waiting {
    fn answer(self, answer: Result<Handout, DeskError>) {
        if self.reply.send(answer).is_err() {
            tracing::debug!("a worker hung up before it was answered");
        }
    }
}
