//! All calls at once, from many callers, as in a busy server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use punctual_core::ids::TaskId;
use punctual_core::lane::LaneId;
use punctual_core::state::{By, Change, Event, State, transition};
use punctual_core::store::{Beat, Claim, Inserted, Start, Store};
use punctual_core::task::Task;
use punctual_core::trail::Step;
use tokio::task::JoinSet;

use super::{StoreFactory, StoreFixture, all_of, complete, dispatcher, fail_for_good, is_done, worker};
use crate::fixtures::{Dice, START, TENANT, retry_policy, task};

const CALLERS: u64 = 10;
const TURNS: usize = 60;

/// Ten callers insert, claim, start, settle, cancel and re-drive the same tasks: every run belongs
/// to one of them, every answered outcome is stored, and every trail is whole.
pub async fn many_at_once_leave_every_task_whole(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = fixture.insert(task().times(20)).await;
    let seen = Arc::new(Mutex::new(Seen::default()));
    let mut callers = JoinSet::new();
    for number in 0..CALLERS {
        let caller = RandomCaller {
            store: Arc::clone(&fixture.store),
            by: fixture.by(),
            lane: first[0].lane.id,
            known: first.iter().map(|task| task.id).collect(),
            dice: Dice::new(number),
            seen: Arc::clone(&seen),
        };
        callers.spawn(caller.work());
    }
    callers.join_all().await;

    let Seen { runs, applied, created } = std::mem::take(&mut *seen.lock().expect("no caller panicked"));
    let everything = fixture.list(all_of(TENANT), 500).await;
    assert_eq!(everything.len(), first.len() + created, "a task was lost or invented");
    for task in &everything {
        let entries: Vec<_> = task.trail.entries().collect();
        assert!(entries.iter().map(|entry| entry.version).eq(1..=task.position.version), "a gap in {:?}", task.trail);
        assert_eq!(entries.last().map(|entry| entry.to), Some(task.state()));
        let started: Vec<u64> = task.trail.runs(task.id).iter().map(|run| run.token).collect();
        let given: Vec<u64> = runs.get(&task.id).into_iter().flatten().copied().collect();
        assert_eq!(started, given, "the runs of {} and those that callers got", task.id);
        let settled =
            entries.iter().filter(|entry| !by_claim(&entry.step)).map(|entry| entry.version).collect::<BTreeSet<_>>();
        assert_eq!(settled, applied.get(&task.id).cloned().unwrap_or_default(), "the changes of {}", task.id);
    }
    let mut live: BTreeMap<(LaneId, State), u64> = BTreeMap::new();
    for task in everything.iter().filter(|task| !task.state().is_final()) {
        *live.entry((task.lane.id, task.state())).or_default() += 1;
    }
    assert_eq!(fixture.counts().await, live);
}

/// Whether a step is written by `insert`, `claim` or `start`, and not by `apply`.
fn by_claim(step: &Step<'_>) -> bool {
    matches!(step, Step::Submitted | Step::Scheduled { .. } | Step::Claimed | Step::Started { .. })
}

/// The answers to all callers.
#[derive(Default)]
struct Seen {
    /// The tokens of the runs that callers got.
    runs: BTreeMap<TaskId, BTreeSet<u64>>,
    /// The versions that changes made.
    applied: BTreeMap<TaskId, BTreeSet<u64>>,
    created: usize,
}

struct RandomCaller {
    store: Arc<dyn Store>,
    by: By<'static>,
    lane: LaneId,
    known: Vec<TaskId>,
    dice: Dice,
    seen: Arc<Mutex<Seen>>,
}

impl RandomCaller {
    async fn work(mut self) {
        for _ in 0..TURNS {
            match self.dice.below(10) {
                0 => self.insert().await,
                1..4 => self.run_leased().await,
                4..6 => self.run_dispatched().await,
                _ => self.meddle().await,
            }
        }
    }

    async fn insert(&mut self) {
        let policy = punctual_core::retry::RetryPolicy { backoff_millis: 0, ..retry_policy() };
        let answers = self.store.insert(task().retry_policy(policy).times(2)).await.expect("insert answers");
        for answer in answers {
            let Inserted::Created(task) = answer else { panic!("{answer:?}") };
            self.known.push(task.id);
            self.seen.lock().expect("no caller panicked").created += 1;
        }
    }

    fn began(&self, task: &Task) {
        let mut seen = self.seen.lock().expect("no caller panicked");
        assert!(seen.runs.entry(task.id).or_default().insert(task.position.version), "two callers got one run");
    }

    async fn claim(&mut self, claimant: punctual_core::store::Claimant) -> Vec<Task> {
        let limit = 1 + self.dice.below(3);
        let claim = Claim { lanes: vec![(self.lane, limit)], limit, claimant };
        self.store.claim(vec![claim]).await.expect("claim answers").remove(0).tasks
    }

    async fn run_leased(&mut self) {
        let leased = self.claim(worker("w")).await;
        for task in &leased {
            self.began(task);
        }
        self.settle(leased).await;
    }

    async fn run_dispatched(&mut self) {
        let queued = self.claim(dispatcher()).await;
        let starts = queued.iter().map(|task| Start {
            id: task.id,
            version: task.position.version,
            worker: "w".into(),
            grace_millis: 1,
        });
        let started = self.store.start(starts.collect()).await.expect("start answers");
        let started: Vec<Task> = started.into_iter().flatten().collect();
        for task in &started {
            self.began(task);
        }
        self.settle(started).await;
    }

    async fn settle(&mut self, running: Vec<Task>) {
        let beats = running.iter().map(|task| Beat {
            tenant: TENANT.into(),
            id: task.id,
            token: task.position.version,
            progress: None,
            checkpoint: None,
            detach: false,
        });
        self.store.extend(beats.collect()).await.expect("extend answers");
        let mut changes = Vec::new();
        for task in running {
            let event = match self.dice.below(8) {
                0 => complete(None),
                1..4 => fail_for_good(&task),
                4 => continue,
                _ => Event::GiveBack(START),
            };
            changes.push((task.id, transition(&task.position, event, &self.by).expect("it runs")));
        }
        self.apply(changes).await;
    }

    /// Cancels, takes back or re-drives tasks, as they were read a moment ago.
    async fn meddle(&mut self) {
        let some: Vec<TaskId> = (0..6).map(|_| *self.dice.pick(&self.known)).collect();
        let read = self.store.get(TENANT, some).await.expect("get answers");
        let mut changes = Vec::new();
        for task in read.into_iter().map(|task| task.expect("every task can always be read")) {
            let event = match (task.state(), self.dice.below(6)) {
                (State::DeadLettered, _) => Event::Redrive(None),
                (_, 0) => Event::Cancel,
                (State::Running, 1) => Event::Stopped,
                (State::Pending, _) => Event::RunNow,
                _ => Event::GiveBack(START),
            };
            changes.extend(transition(&task.position, event, &self.by).ok().map(|change| (task.id, change)));
        }
        self.apply(changes).await;
    }

    async fn apply(&self, changes: Vec<(TaskId, Change)>) {
        let answers = self.store.apply(changes.clone()).await.expect("apply answers");
        let mut seen = self.seen.lock().expect("no caller panicked");
        for ((id, change), _) in changes.iter().zip(&answers).filter(|(_, answer)| is_done(answer)) {
            assert!(seen.applied.entry(*id).or_default().insert(change.version), "one version was made twice");
        }
    }
}
