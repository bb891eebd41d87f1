//! Random histories of tasks with ordering keys, compared with a model that knows only the rule.

use std::collections::HashMap;

use punctual_core::ids::TaskId;
use punctual_core::lane::LaneId;
use punctual_core::state::{Event, State};
use punctual_core::task::{Edit, Task};

use crate::fixtures::{Dice, at, task};
use crate::store::{StoreFactory, StoreFixture, complete, fail, fail_for_good, fail_under_breaker};

const SEEDS: u64 = 6;
const STEPS: usize = 250;
const KEYS: usize = 3;

/// A live task in the model.
struct LiveTask {
    key: usize,
    /// The order of submission.
    number: usize,
    task: Task,
}

/// The live tasks, and which task of each key has begun.
struct Model<'a> {
    fixture: StoreFixture<'a>,
    live: HashMap<TaskId, LiveTask>,
    dead: Vec<(usize, usize, Task)>,
    lanes: Vec<LaneId>,
    dice: Dice,
    number: usize,
}

/// Submissions, claims, all final states, retries, give-backs, edits and re-drives: only the first
/// task of each key runs, one at a time.
pub async fn turns_follow_a_model_in_random_histories(factory: &dyn StoreFactory) {
    let mut fixture = StoreFixture::open(factory).await;
    for seed in 0..SEEDS {
        let mut model = Model {
            fixture,
            live: HashMap::new(),
            dead: Vec::new(),
            lanes: Vec::new(),
            dice: Dice::new(seed),
            number: 0,
        };
        for _ in 0..STEPS {
            model.step().await;
        }
        model.drain().await;
        fixture = model.fixture.reopen().await;
    }
}

impl Model<'_> {
    async fn step(&mut self) {
        match self.dice.below(12) {
            0..=3 => self.submit().await,
            4..=7 => self.claim().await,
            8 => self.edit().await,
            9 => self.cancel().await,
            10 => self.redrive().await,
            _ => self.fixture.advance(self.dice.any() % 3_000),
        }
    }

    fn key(&self, task: &Task) -> usize {
        self.live[&task.id].key
    }

    /// The task that has begun, or else the first by time, then by number.
    fn head(&self, key: usize) -> Option<&LiveTask> {
        let of_key = || self.live.values().filter(|known| known.key == key);
        let has_begun = |known: &&LiveTask| known.task.state().is_held() || known.task.position.attempts > 0;
        of_key().find(has_begun).or_else(|| of_key().min_by_key(|known| (known.task.execute_at, known.number)))
    }

    async fn submit(&mut self) {
        let key = self.dice.below(KEYS);
        let due = i64::try_from(self.dice.below(6_000)).expect("it is small") - 3_000;
        let queue = format!("q{}", self.dice.below(2));
        let wish = task().queue(&queue).ordering_key(&format!("k{key}")).due(self.fixture.now().plus_millis(due));
        let task = self.fixture.insert_one(wish).await;
        if !self.lanes.contains(&task.lane.id) {
            self.lanes.push(task.lane.id);
        }
        self.live.insert(task.id, LiveTask { key, number: self.number, task });
        self.number += 1;
        self.maybe_resolve().await;
    }

    /// Resolves sometimes, so that several notes come together.
    async fn maybe_resolve(&mut self) {
        if !self.dice.once_in(3) {
            self.fixture.resolve().await;
        }
    }

    async fn claim(&mut self) {
        self.fixture.resolve().await;
        if self.lanes.is_empty() {
            return;
        }
        let lane = *self.dice.pick(&self.lanes);
        for task in self.fixture.lease(lane, 10).await {
            let key = self.key(&task);
            let head = self.head(key).expect("it is live");
            assert_eq!(head.task.id, task.id, "key {key}: another was first");
            assert!(!head.task.state().is_held(), "key {key}: two at once");
            let known = self.live.get_mut(&task.id).expect("it is live");
            known.task = task;
        }
        // Every due task with the turn in this lane was taken.
        for key in 0..KEYS {
            if let Some(head) = self.head(key) {
                let waits = head.task.state() == State::Pending && head.task.lane.id == lane;
                assert!(!waits || head.task.due_at > self.fixture.now(), "key {key}: its head was not claimed");
            }
        }
        self.end_some().await;
    }

    /// Ends some running tasks, each in a random way.
    async fn end_some(&mut self) {
        let running: Vec<TaskId> = self
            .live
            .values()
            .filter(|known| known.task.state() == State::Running)
            .map(|known| known.task.id)
            .collect();
        for id in running {
            let task = self.live[&id].task.clone();
            let event = match self.dice.below(7) {
                0 => continue,
                1 => fail(&task),
                2 => fail_for_good(&task),
                3 => fail_under_breaker(&task),
                4 => Event::GiveBack(self.fixture.now().plus_millis(500)),
                _ => complete(None),
            };
            let task = self.fixture.apply(&task, event).await;
            self.put(task);
            self.maybe_resolve().await;
        }
    }

    fn put(&mut self, task: Task) {
        if task.state().is_final() {
            let known = self.live.remove(&task.id).expect("it was live");
            if task.state() == State::DeadLettered {
                self.dead.push((known.key, known.number, task));
            }
        } else {
            let known = self.live.get_mut(&task.id).expect("it was live");
            known.task = task;
        }
    }

    /// A waiting task, as the store has it: getting the turn changes its due instant.
    async fn waiting(&mut self) -> Option<Task> {
        let waiting: Vec<TaskId> = self
            .live
            .values()
            .filter(|known| known.task.state() == State::Pending)
            .map(|known| known.task.id)
            .collect();
        if waiting.is_empty() {
            return None;
        }
        let task = self.live[self.dice.pick(&waiting)].task.clone();
        Some(self.fixture.get(&task).await)
    }

    async fn edit(&mut self) {
        let Some(task) = self.waiting().await else { return };
        let millis = i64::try_from(self.dice.below(6_000)).expect("it is small") - 3_000;
        let edit = Edit { execute_at: Some(self.fixture.now().plus_millis(millis)), ..Edit::default() };
        let task = self.fixture.apply(&task, Event::Edit(Box::new(edit))).await;
        self.put(task);
        self.maybe_resolve().await;
    }

    async fn cancel(&mut self) {
        let Some(task) = self.waiting().await else { return };
        let task = self.fixture.apply(&task, Event::Cancel).await;
        self.put(task);
        self.maybe_resolve().await;
    }

    async fn redrive(&mut self) {
        if self.dead.is_empty() {
            return;
        }
        let place = self.dice.below(self.dead.len());
        let (key, number, dead) = self.dead.swap_remove(place);
        let task = self.fixture.apply(&dead, Event::Redrive(None)).await;
        self.live.insert(task.id, LiveTask { key, number, task });
        self.maybe_resolve().await;
    }

    /// Runs every remaining task to its end.
    async fn drain(&mut self) {
        for _ in 0..10_000 {
            if self.live.is_empty() {
                return;
            }
            self.fixture.advance(10_000);
            self.claim().await;
        }
        panic!("{} tasks never ran, from {:?}", self.live.len(), at(0));
    }
}
