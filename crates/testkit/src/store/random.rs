//! Random histories against a model: cases that the sentences do not cover.

use std::collections::{BTreeMap, BTreeSet};

use punctual_core::failure::FailureCause;
use punctual_core::ids::TaskId;
use punctual_core::lane::LaneId;
use punctual_core::retry::RetryPolicy;
use punctual_core::state::{Change, Event, Position, State, transition};
use punctual_core::store::{Beat, Claim, Filter, Start};
use punctual_core::task::{Edit, NewTask, Task};
use punctual_core::time::Timestamp;

use super::model::{Model, assert_same_row};
use super::{
    GRACE_MILLIS, StoreFactory, StoreFixture, WORKER, all_of, complete, dispatcher_from, failure, ids, webhook_worker,
    worker,
};
use crate::fixtures::{Dice, json, retry_policy, task};

/// The number of histories. Their seeds begin at 1, or at `PUNCTUAL_SEED`.
const HISTORIES: u64 = 5;
const STEPS: usize = 200;
const MOST_TASKS: usize = 60;

/// Inserts, claims, starts, outcomes, cancels, edits, re-drives and the passing of time in random
/// order: after each step every read returns the content of the model.
pub async fn random_histories_match_a_model(factory: &dyn StoreFactory) {
    let mut fixture = StoreFixture::open(factory).await;
    let first: u64 = std::env::var("PUNCTUAL_SEED").map_or(1, |seed| seed.parse().expect("PUNCTUAL_SEED is a number"));
    for seed in first..first + HISTORIES {
        let mut history = History {
            fixture,
            model: Model::default(),
            dice: Dice::new(seed),
            tenants: ["a", "b"].map(|name| format!("{name} of {seed}")),
            before: Vec::new(),
            log: Log(vec![format!("seed {seed}")]),
        };
        for step in 0..STEPS {
            history.step().await;
            history.compare().await;
            if step % 10 == 0 {
                history.compare_listings().await;
            }
            if step % 100 == 99 {
                history.fixture = history.fixture.reopen().await;
            }
        }
        let states: BTreeSet<State> = history.model.rows.values().map(Task::state).collect();
        assert!(states.len() >= 5, "the history reached too few states: {states:?}");
        fixture = history.fixture;
    }
}

struct History<'a> {
    fixture: StoreFixture<'a>,
    model: Model,
    dice: Dice,
    tenants: [String; 2],
    /// Earlier positions of tasks, which late workers and slow nodes still use.
    before: Vec<(TaskId, Position)>,
    log: Log,
}

/// The steps so far, shown when the test fails.
struct Log(Vec<String>);

impl Drop for Log {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the history, latest last:\n{}", self.0.join("\n"));
        }
    }
}

impl History<'_> {
    async fn step(&mut self) {
        let believed = self.model.rows.iter().map(|(id, task)| (*id, task.position));
        let believed: Vec<_> = believed.collect();
        match self.dice.below(100) {
            0..15 => self.insert().await,
            15..35 => self.claim().await,
            35..45 => self.start().await,
            45..75 => self.apply().await,
            75..83 => self.extend().await,
            83..93 => self.let_time_pass(),
            _ => self.reap().await,
        }
        if self.dice.once_in(5) {
            self.before = believed;
        }
    }

    /// An instant near now. All are whole multiples of ten milliseconds, as the clock is.
    fn near(&mut self, back: usize, ahead: usize) -> Timestamp {
        let moved = i64::try_from(self.dice.below(back + ahead)).unwrap() - i64::try_from(back).unwrap();
        self.fixture.now().plus_millis(moved * 10)
    }

    async fn insert(&mut self) {
        let room = MOST_TASKS.saturating_sub(self.model.rows.len()).min(5);
        let batch: Vec<NewTask> = (0..self.dice.below(room + 1)).map(|_| self.new_task()).collect();
        self.log
            .0
            .push(format!("insert {:?}", batch.iter().map(|task| (task.id, &task.idempotency)).collect::<Vec<_>>()));
        let answers = self.fixture.store.insert(batch.clone()).await.expect("insert answers");
        self.model.insert(&batch, answers);
    }

    fn new_task(&mut self) -> NewTask {
        let tenant = self.dice.pick(&self.tenants).clone();
        let due = self.near(50, 200);
        let policy = RetryPolicy {
            max_retries: u32::try_from(self.dice.below(3)).unwrap(),
            backoff_millis: 500,
            ..retry_policy()
        };
        let mut new = task()
            .tenant(&tenant)
            .queue(["p", "q"][self.dice.below(2)])
            .priority(*self.dice.pick(&[2, 5]))
            .created_at(self.fixture.now())
            .due(due)
            .payload(&self.dice.any().to_string())
            .label("n", &self.dice.below(3).to_string())
            .retry_policy(policy);
        if self.dice.once_in(4) {
            // Never exactly the instant of the clock: the contract does not say whether that is
            // expired.
            new = new.expires_at(self.near(20, 400).plus_millis(7));
        }
        if self.dice.once_in(3) {
            new = new.key(&format!("k{}", self.dice.below(4)), u8::from(self.dice.once_in(5)));
        }
        new.build()
    }

    fn lanes(&mut self) -> Vec<LaneId> {
        let lanes: BTreeSet<LaneId> = self.model.rows.values().map(|task| task.lane.id).collect();
        let mut lanes: Vec<LaneId> = lanes.into_iter().collect();
        self.dice.shuffle(&mut lanes);
        lanes
    }

    async fn claim(&mut self) {
        let mut lanes = self.lanes();
        lanes.truncate(1 + self.dice.below(4));
        let lanes = lanes.into_iter().map(|lane| (lane, self.dice.below(5))).collect();
        let claimant = if self.dice.once_in(4) {
            webhook_worker()
        } else if self.dice.once_in(2) {
            let from = self.dice.once_in(3).then(|| self.near(30, 10));
            dispatcher_from(from)
        } else {
            worker(["w1", "w2"][self.dice.below(2)])
        };
        let claim = Claim { lanes, limit: self.dice.below(7), claimant };
        self.log.0.push(format!("at {} {claim:?}", self.fixture.now()));
        let may_fail = self.model.expired(&claim, self.fixture.now());
        let answer = self.fixture.claim(claim.clone()).await;
        let mut failed = Vec::new();
        for id in may_fail {
            let task = self.fixture.get(&self.model.rows[&id]).await;
            failed.extend((task.state() == State::Failed).then_some(task));
        }
        self.model.claim(&claim, answer, failed, self.fixture.now());
    }

    /// Some tasks, mostly with their current position, sometimes with an earlier one.
    fn some_positions(&mut self, most: usize) -> Vec<(TaskId, Position)> {
        let known: Vec<TaskId> = self.model.rows.keys().copied().collect();
        if known.is_empty() {
            return Vec::new();
        }
        let count = 1 + self.dice.below(most);
        let mut some = Vec::new();
        for _ in 0..count {
            let id = *self.dice.pick(&known);
            let old = self.before.iter().find(|(of, _)| *of == id).copied().filter(|_| self.dice.once_in(5));
            some.push(old.unwrap_or((id, self.model.rows[&id].position)));
        }
        some
    }

    async fn start(&mut self) {
        let mut some = self.some_positions(12);
        some.retain(|(_, position)| position.state == State::Queued || self.dice.once_in(8));
        let starts: Vec<Start> = some
            .into_iter()
            .map(|(id, Position { version, .. })| Start {
                id,
                version,
                worker: WORKER.into(),
                grace_millis: GRACE_MILLIS,
            })
            .collect();
        self.log.0.push(format!("{starts:?}"));
        let answers = self.fixture.store.start(starts.clone()).await.expect("start answers");
        assert_eq!(answers.len(), starts.len());
        for (start, answer) in starts.iter().zip(answers) {
            let tenant = self.model.tenant(start.id);
            let after = self.fixture.find(&tenant, start.id).await.expect("the model has it");
            self.model.start(start.id, start.version, answer, &after, self.fixture.now());
        }
    }

    async fn apply(&mut self) {
        let by = self.fixture.by();
        let mut changes: Vec<(TaskId, Change)> = Vec::new();
        for (id, position) in self.some_positions(8) {
            let event = self.event(id);
            let tenant = self.dice.once_in(3).then(|| self.dice.pick(&self.tenants).clone());
            let Ok(change) = transition(&position, event, &by) else { continue };
            changes.push((id, tenant.map_or(change.clone(), |tenant| change.of_tenant(&tenant))));
        }
        if let Some((id, change)) = changes.first().cloned().filter(|_| self.dice.once_in(4)) {
            // A second step on top of the first, in the same batch.
            let position = super::batches::after(&self.model.rows[&id].position, &change);
            let event = self.event(id);
            changes.extend(transition(&position, event, &by).ok().map(|change| (id, change)));
        }
        self.write(changes).await;
    }

    async fn write(&mut self, changes: Vec<(TaskId, Change)>) {
        for (id, change) in &changes {
            let step = change.trail.last().map(|entry| entry.reason().into_owned());
            self.log.0.push(format!("{id} {step:?} {:?} {} -> {:?}", change.from, change.expected_version, change.to));
        }
        let answers = self.fixture.store.apply(changes.clone()).await.expect("apply answers");
        assert_eq!(answers.len(), changes.len());
        for ((id, change), answer) in changes.iter().zip(&answers) {
            self.model.apply(*id, change, answer);
        }
    }

    fn event(&mut self, id: TaskId) -> Event<'static> {
        let cause = *self.dice.pick(&[FailureCause::Reported, FailureCause::Timeout, FailureCause::Lost]);
        let failure = failure(&self.model.rows[&id], cause, !self.dice.once_in(4));
        match self.dice.below(16) {
            0 => Event::Cancel,
            1 => Event::Expire,
            2..5 => Event::Edit(Box::new(self.edit())),
            5 => Event::RunNow,
            6 | 7 => Event::Redrive(self.dice.once_in(2).then(|| json("\"re-driven\""))),
            8 | 9 => complete(Some(&self.dice.any().to_string())),
            10..13 => Event::Fail(failure),
            13 | 14 => Event::GiveBack(self.near(1, 50)),
            _ => Event::Stopped,
        }
    }

    fn edit(&mut self) -> Edit {
        let mut edit = Edit::default();
        if self.dice.once_in(2) {
            edit.execute_at = Some(self.near(50, 200));
        }
        if self.dice.once_in(3) {
            edit.priority = Some(*self.dice.pick(&[2, 5, 8]));
        }
        if self.dice.once_in(4) {
            edit.payload = Some(json("\"edited\""));
            edit.metadata = Some(BTreeMap::from([("n".to_owned(), "edited".to_owned())]));
        }
        if self.dice.once_in(4) {
            let until = self.near(20, 400).plus_millis(7);
            edit.expires_at = Some(self.dice.once_in(2).then_some(until));
        }
        edit
    }

    async fn extend(&mut self) {
        let mut some = self.some_positions(12);
        some.retain(|(_, position)| position.state == State::Running || self.dice.once_in(8));
        let mut beats = Vec::new();
        for (id, position) in some {
            let progress = self.dice.once_in(2).then(|| json(&self.dice.any().to_string()));
            let checkpoint = self.dice.once_in(2).then(|| json(&self.dice.any().to_string()));
            let tenant = self.model.rows[&id].tenant().to_owned();
            let detach = self.dice.once_in(4);
            beats.push(Beat { tenant, id, token: position.version, progress, checkpoint, detach });
        }
        self.log.0.push(format!("at {} {beats:?}", self.fixture.now()));
        let answers = self.fixture.store.extend(beats.clone()).await.expect("extend answers");
        assert_eq!(answers.len(), beats.len());
        for (beat, answer) in beats.iter().zip(&answers) {
            self.model.extend(beat, answer.as_ref(), self.fixture.now());
        }
    }

    fn let_time_pass(&mut self) {
        let most = *self.dice.pick(&[100, 100, 1_000, 10_000]);
        let tens = u64::try_from(self.dice.below(most)).unwrap();
        self.fixture.advance(tens * 10);
        self.log.0.push(format!("it is {}", self.fixture.now()));
    }

    async fn reap(&mut self) {
        let by = self.fixture.by();
        let found = self.fixture.store.overdue(vec![], 5).await.expect("overdue answers");
        let own: Vec<&Task> = found.iter().filter(|task| self.model.rows.contains_key(&task.id)).collect();
        let changes = own.iter().map(|task| {
            let event = match task.state() {
                State::Pending => Event::Expire,
                State::Queued => Event::GiveBack(by.now),
                _ => Event::Fail(failure(task, FailureCause::Lost, true)),
            };
            (task.id, transition(&task.position, event, &by).expect("an overdue task can be taken back"))
        });
        self.write(changes.collect()).await;
    }

    async fn compare(&mut self) {
        for tenant in &self.tenants {
            let wanted: Vec<&Task> = self.model.rows.values().filter(|task| task.tenant() == tenant).collect();
            let asked: Vec<TaskId> = wanted.iter().map(|task| task.id).collect();
            let shown = self.fixture.store.get(tenant, asked).await.expect("get answers");
            for (shown, row) in shown.iter().zip(wanted) {
                assert_same_row(shown.as_ref().expect("no task is lost"), row);
            }
        }
        let rows = || self.model.rows.values();
        let own: BTreeSet<LaneId> = rows().map(|task| task.lane.id).collect();
        let mut counts: BTreeMap<(LaneId, State), u64> = BTreeMap::new();
        let mut heads: BTreeMap<LaneId, Timestamp> = BTreeMap::new();
        for task in rows().filter(|task| !task.state().is_final()) {
            *counts.entry((task.lane.id, task.state())).or_default() += 1;
            if task.state() == State::Pending {
                let head = heads.entry(task.lane.id).or_insert(task.due_at);
                *head = task.due_at.min(*head);
            }
        }
        let mut shown = self.fixture.counts().await;
        shown.retain(|(lane, _), _| own.contains(lane));
        assert_eq!(shown, counts, "counts");
        let shown = self.fixture.heads(Timestamp::MAX, 100).await.into_iter().map(|(lane, _, due)| (lane, due));
        assert_eq!(shown.filter(|(lane, _)| own.contains(lane)).collect::<BTreeMap<_, _>>(), heads, "heads");
        let overdue = self.fixture.overdue(vec![]).await;
        for id in self.model.rows.keys() {
            if let Some(expected) = self.model.is_overdue(*id, self.fixture.now()) {
                assert_eq!(overdue.contains(id), expected, "whether {id} is overdue");
            }
        }
    }

    async fn compare_listings(&mut self) {
        let tenant = self.dice.pick(&self.tenants).clone();
        let states: Vec<State> = State::ALL.into_iter().filter(|_| self.dice.once_in(2)).collect();
        let label = self.dice.below(3).to_string();
        let after = self.near(200, 100);
        for filter in [
            all_of(&tenant),
            Filter { states: states.clone(), by_execute_at: true, ..all_of(&tenant) },
            Filter {
                metadata: [("n".to_owned(), label.clone())].into(),
                execute_after: Some(after),
                ..all_of(&tenant)
            },
        ] {
            let mut expected: Vec<&Task> = self
                .model
                .rows
                .values()
                .rev()
                .filter(|task| task.tenant() == tenant)
                .filter(|task| filter.states.is_empty() || filter.states.contains(&task.state()))
                .filter(|task| filter.metadata.is_empty() || task.body.metadata["n"] == label)
                .filter(|task| filter.execute_after.is_none_or(|after| task.execute_at >= after))
                .collect();
            if filter.by_execute_at {
                expected.sort_by_key(|task| (task.execute_at, task.id));
            }
            let listed = self.fixture.list(filter.clone(), 1 + self.dice.below(9)).await;
            assert_eq!(ids(&listed), expected.iter().map(|task| task.id).collect::<Vec<_>>(), "{filter:?}");
            for (listed, row) in listed.iter().zip(expected) {
                assert_same_row(listed, row);
            }
        }
    }
}
