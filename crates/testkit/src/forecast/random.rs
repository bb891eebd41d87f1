//! Random histories, compared with a count over every task.

use std::collections::BTreeMap;

use punctual_core::forecast::Minute;
use punctual_core::ids::TaskId;
use punctual_core::lane::LaneId;
use punctual_core::state::{Change, Event, State};
use punctual_core::task::{NewTask, Task};
use punctual_core::time::Timestamp;

use super::{MINUTE, retry_after, time};
use crate::fixtures::{Dice, task};
use crate::store::{StoreFactory, StoreFixture, all_of, complete, fail_for_good};

const SEEDS: u64 = 4;
const STEPS: usize = 150;
const TENANTS: [&str; 2] = ["acme", "other"];

/// A store, and the tasks that were submitted to it.
struct History<'a> {
    fixture: StoreFixture<'a>,
    tasks: Vec<(&'static str, TaskId)>,
    lanes: Vec<LaneId>,
    dice: Dice,
}

/// Whatever happens to tasks, the counts are those of the tasks that wait for later minutes.
pub async fn counts_follow_random_histories(factory: &dyn StoreFactory) {
    let mut fixture = StoreFixture::open(factory).await;
    for seed in 0..SEEDS {
        let mut history = History { fixture, tasks: Vec::new(), lanes: Vec::new(), dice: Dice::new(seed) };
        for step in 0..STEPS {
            history.step().await;
            if step % 10 == 9 {
                history.check(seed, step).await;
            }
        }
        fixture = history.fixture.reopen().await;
    }
}

impl History<'_> {
    async fn step(&mut self) {
        match self.dice.below(16) {
            0..=3 => self.submit().await,
            4..=6 => self.run_some().await,
            7..=9 => self.change(1).await,
            10 | 11 => self.change(8).await,
            12 | 13 => drop(self.fixture.resolve().await),
            _ => self.fixture.advance(self.dice.any() % 90_000),
        }
    }

    /// Up to half a minute ago, and up to ten minutes ahead.
    fn some_time(&mut self) -> Timestamp {
        let millis = i64::try_from(self.dice.below(630_000)).expect("it is small") - MINUTE / 2;
        self.fixture.now().plus_millis(millis)
    }

    async fn submit(&mut self) {
        let count = if self.dice.once_in(3) { 20 } else { 1 };
        let tasks: Vec<NewTask> = (0..count).map(|_| self.wish()).collect();
        let tenants: Vec<&'static str> =
            tasks.iter().map(|task| if task.lane.tenant == TENANTS[0] { TENANTS[0] } else { TENANTS[1] }).collect();
        for (task, tenant) in self.fixture.insert(tasks).await.iter().zip(tenants) {
            self.tasks.push((tenant, task.id));
            if !self.lanes.contains(&task.lane.id) {
                self.lanes.push(task.lane.id);
            }
        }
    }

    fn wish(&mut self) -> NewTask {
        let tenant = *self.dice.pick(&TENANTS);
        let mut wish = task().tenant(tenant).queue(&format!("q{}", self.dice.below(2))).due(self.some_time());
        if self.dice.once_in(5) {
            wish = wish.ordering_key(&format!("k{}", self.dice.below(3)));
        }
        let parents: Vec<TaskId> = self.tasks.iter().filter(|(of, _)| *of == tenant).map(|(_, id)| *id).collect();
        if self.dice.once_in(5) && !parents.is_empty() {
            wish = wish.depends_on(&[*self.dice.pick(&parents)]);
        }
        wish.build()
    }

    /// Claims from a lane, and ends each claimed task in a random way.
    async fn run_some(&mut self) {
        if self.lanes.is_empty() {
            return;
        }
        let lane = *self.dice.pick(&self.lanes);
        let claimed = self.fixture.lease(lane, 5).await;
        let mut changes = Vec::new();
        for task in &claimed {
            let event = match self.dice.below(5) {
                0 => retry_after(task, self.dice.any() % 400_000),
                1 => Event::GiveBack(self.some_time()),
                2 => fail_for_good(task),
                _ => complete(None),
            };
            changes.push(self.fixture.change(task, event));
        }
        self.fixture.store.apply(changes).await.expect("apply answers");
    }

    /// Edits, cancels, runs now or re-drives some tasks in one call. Leaves out illegal events.
    async fn change(&mut self, count: usize) {
        let mut changes: Vec<(TaskId, Change)> = Vec::new();
        for _ in 0..count {
            if self.tasks.is_empty() {
                return;
            }
            let (tenant, id) = *self.dice.pick(&self.tasks);
            let Some(task) = self.fixture.find(tenant, id).await else { continue };
            let event = match self.dice.below(4) {
                0 => Event::Cancel,
                1 => Event::RunNow,
                _ => time(self.some_time()),
            };
            let event = if task.state() == State::DeadLettered { Event::Redrive(None) } else { event };
            changes.extend(self.possible(&task, event));
        }
        self.fixture.store.apply(changes).await.expect("apply answers");
    }

    fn possible(&self, task: &Task, event: Event<'_>) -> Option<(TaskId, Change)> {
        let change = punctual_core::state::transition(&task.position, event, &self.fixture.by());
        change.ok().map(|change| (task.id, change))
    }

    async fn check(&self, seed: u64, step: usize) {
        let next = Minute::of(self.fixture.now()).plus(1);
        for tenant in TENANTS {
            let mut expected: BTreeMap<Minute, u64> = BTreeMap::new();
            for task in self.fixture.list(all_of(tenant), 500).await {
                let minute = Minute::of(task.due_at);
                if task.state() == State::Pending && minute >= next {
                    *expected.entry(minute).or_default() += 1;
                }
            }
            let found = self.fixture.database.waiting(tenant, next, next.plus(1_000)).await.expect("waiting answers");
            let expected: Vec<(Minute, u64)> = expected.into_iter().collect();
            assert_eq!(found, expected, "{tenant} in history {seed} after step {step}, from {next:?} on");
        }
    }
}
