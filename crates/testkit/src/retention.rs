//! The conformance suite of pruning by [`punctual_core::upkeep::Upkeep`]: each sentence of its
//! contract is a function here of the same name.

mod lanes;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_core::forecast::Minute;
use punctual_core::ids::TaskId;
use punctual_core::state::{Event, State};
use punctual_core::store::{Applied, Inserted};
use punctual_core::task::{NewTask, Task};
use punctual_core::time::Timestamp;
use punctual_core::upkeep::{Prunable, Pruned};

pub use lanes::*;

use crate::fixtures::{TENANT, TaskBuilder, at, task};
use crate::store::{
    StoreFactory, StoreFixture, all_of, assert_same, complete, created, fail_for_good, ids, is_done, replayed,
};

/// This much later everything in a test can be pruned.
const LONG_AFTER: i64 = 1_000_000_000;

/// More than any store reads in one step.
const MANY: usize = 5_000;

/// Stamps the suite. `$factory` is an expression that returns a `StoreFactory` with a fresh place.
#[macro_export]
macro_rules! retention_conformance {
    ($factory:expr) => {
        $crate::stamp! { retention, $factory;
            old_history_is_pruned,
            younger_and_live_tasks_are_kept,
            a_step_is_small,
            pruned_tasks_never_come_back,
            old_keys_are_free_again,
            a_key_of_a_live_task_is_kept,
            a_key_may_outlive_its_task,
            past_minutes_are_pruned,
            empty_lanes_are_removed,
            lanes_in_use_are_kept,
            a_removed_lane_is_made_again,

            many_steps_find_everything_to_prune,
            work_goes_on_meanwhile,
            tasks_come_while_lanes_are_removed,
        }
    };
}

/// A task in any final state is removed everywhere, and its key can be used again.
pub async fn old_history_is_pruned(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let old = one_of_each_end(&fixture).await;
    fixture.advance(1_000);
    let young = one_of_each_end(&fixture).await;
    let waiting = fixture.insert_one(task().due(at(LONG_AFTER))).await;
    let before = at(1_000);
    assert_eq!(prune_history(&fixture, before, 100).await, 4);
    for task in &old {
        assert!(fixture.find(TENANT, task.id).await.is_none(), "{:?} is still there", task.state());
    }
    let left: BTreeSet<TaskId> = young.iter().chain([&waiting]).map(|task| task.id).collect();
    for page in [1, 3, 100] {
        assert_eq!(ids(&fixture.list(all_of(TENANT), page).await).into_iter().collect::<BTreeSet<_>>(), left);
    }
    for task in &young {
        assert_same(&fixture.get(task).await, task);
    }
    assert_eq!(prune_history(&fixture, before, 100).await, 0, "there is no more");
    // The store still works.
    one_of_each_end(&fixture).await;
}

/// A task that finished at the instant itself stays, and so does an unfinished one, however old.
pub async fn younger_and_live_tasks_are_kept(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let blank = || task().created_at(at(-LONG_AFTER)).due(at(-LONG_AFTER));
    let running = fixture.running(blank().queue("running")).await;
    let stopping = fixture.running(blank().queue("stopping")).await;
    let stopping = fixture.apply(&stopping, Event::Cancel).await;
    let queued = fixture.insert_one(blank().push("http://x.example:80")).await;
    let queued = fixture.dispatch(queued.lane.id, 1).await.pop().expect("it is due");
    let waiting = fixture.insert_one(blank().queue("waiting")).await;
    let planned = fixture.insert_one(blank().queue("waiting").due(at(LONG_AFTER))).await;
    let driven = fixture.running(blank().queue("driven")).await;
    let driven = fixture.apply(&driven, fail_for_good(&driven)).await;
    let driven = fixture.apply(&driven, Event::Redrive(None)).await;
    let slow = fixture.running(blank().queue("slow")).await;
    fixture.advance(5_000);
    let done = fixture.apply(&slow, complete(Some("1"))).await;
    assert_eq!(done.completed_at, Some(at(5_000)));
    let counts = fixture.counts().await;

    prune_history(&fixture, at(5_000), 100).await;
    for task in [&running, &stopping, &queued, &waiting, &planned, &driven, &done] {
        assert_same(&fixture.get(task).await, task);
    }
    prune_history(&fixture, at(LONG_AFTER), 100).await;
    for task in [&running, &stopping, &queued, &waiting, &planned, &driven] {
        assert_same(&fixture.get(task).await, task);
    }
    assert!(fixture.find(TENANT, done.id).await.is_none());
    assert_eq!(fixture.counts().await, counts);
    let again = fixture.lease(waiting.lane.id, 5).await;
    assert_eq!(ids(&again), [waiting.id], "it can be worked on as before");
}

/// No step removes more than its limit, and the steps together remove everything.
pub async fn a_step_is_small(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    finish(&fixture, (0..20).map(|key| task().key(&format!("k{key}"), 1).build()).collect()).await;
    assert_eq!(prune_history(&fixture, at(LONG_AFTER), 3).await, 20);
    assert_eq!(prune_keys(&fixture, at(LONG_AFTER), 3).await, 20);
    assert!(fixture.list(all_of(TENANT), 10).await.is_empty());
}

/// Neither a change that was decided before nor a restart finds them.
pub async fn pruned_tasks_never_come_back(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let running = fixture.running(task().label("a", "b")).await;
    let dead = fixture.apply(&running, fail_for_good(&running)).await;
    let redrive = fixture.change(&dead, Event::Redrive(None));
    prune_history(&fixture, at(LONG_AFTER), 10).await;
    assert!(matches!(fixture.apply_change(redrive.clone()).await, Applied::Lost), "it came back");
    let fixture = fixture.reopen().await;
    assert!(!is_done(&fixture.apply_change(redrive).await), "it came back");
    assert!(fixture.find(TENANT, dead.id).await.is_none());
    assert!(fixture.list(all_of(TENANT), 10).await.is_empty());
    assert!(fixture.counts().await.is_empty());
    let next = fixture.insert_one(task()).await;
    assert_same(&fixture.get(&next).await, &next);
    assert_eq!(ids(&fixture.lease(next.lane.id, 10).await), [next.id]);
}

/// An expired key makes another task, with the same content or another.
pub async fn old_keys_are_free_again(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let wish = |key: &str, content| task().key(key, content).created_at(fixture.now());
    let first = finish(&fixture, vec![wish("same", 1).build(), wish("other", 1).build()]).await;
    assert_eq!(prune_keys(&fixture, at(0), 10).await, 0);
    assert_same(&replayed(submit(&fixture, wish("same", 1)).await), &first[0]);
    assert_eq!(prune_keys(&fixture, at(1), 10).await, 2);
    fixture.advance(1);
    let same = created(submit(&fixture, wish("same", 1)).await);
    let other = created(submit(&fixture, wish("other", 2)).await);
    assert_same(&replayed(submit(&fixture, wish("same", 1)).await), &same);
    assert!(matches!(submit(&fixture, wish("other", 1)).await, Inserted::KeyReused(id) if id == other.id));
    for task in &first {
        assert_same(&fixture.get(task).await, task);
    }
}

/// Otherwise a live task would run twice. A client may still retry with a young key.
pub async fn a_key_of_a_live_task_is_kept(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let waiting = fixture.insert_one(task().key("waiting", 1).due(at(LONG_AFTER))).await;
    let running = fixture.running(task().key("running", 1)).await;
    fixture.advance(10);
    let young = finish(&fixture, vec![task().key("young", 1).created_at(at(10)).build()]).await.remove(0);
    assert_eq!(prune_keys(&fixture, at(10), 10).await, 0);
    for (key, first) in [("waiting", &waiting), ("running", &running), ("young", &young)] {
        assert_same(&replayed(submit(&fixture, task().key(key, 1)).await), first);
    }
    fixture.apply(&running, complete(None)).await;
    assert_eq!(prune_keys(&fixture, at(LONG_AFTER), 10).await, 2, "the keys of tasks that have finished");
    assert_same(&replayed(submit(&fixture, task().key("waiting", 1)).await), &waiting);
}

/// A key without its task is refused until the key expires, so that the work is not done again.
pub async fn a_key_may_outlive_its_task(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let done = finish(&fixture, vec![task().key("k", 1).build()]).await.remove(0);
    prune_history(&fixture, at(LONG_AFTER), 10).await;
    for content in [1, 2] {
        let answer = submit(&fixture, task().key("k", content)).await;
        assert!(matches!(answer, Inserted::KeyReused(id) if id == done.id), "{answer:?}");
    }
    assert!(fixture.list(all_of(TENANT), 10).await.is_empty());
    assert_eq!(prune_keys(&fixture, at(LONG_AFTER), 10).await, 1);
    created(submit(&fixture, task().key("k", 1)).await);
}

/// No step removes more than its limit, and the steps together remove all past minutes of every
/// tenant.
pub async fn past_minutes_are_pruned(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let wish = |number: i64| task().tenant(["a", "b"][usize::from(number % 2 == 0)]).due(at(number * 60_000)).build();
    fixture.insert((1..=20).map(wish).collect()).await;
    fixture.advance(10 * 60_000 + 30_000);
    let mut removed = 0;
    for _ in 0..100 {
        let pruned = fixture.database.prune(Prunable::Forecast, fixture.now(), 2).await.expect("prune answers");
        assert!(pruned.removed <= 2, "{pruned:?}");
        removed += pruned.removed;
        if !pruned.more {
            break;
        }
    }
    assert_eq!(removed, 9);
    let start = Minute::of(at(0));
    for (tenant, left) in [("a", vec![11, 13, 15, 17, 19]), ("b", vec![10, 12, 14, 16, 18, 20])] {
        let shown = fixture.database.waiting(tenant, start, start.plus(100)).await.expect("waiting answers");
        let minutes: Vec<i64> = shown.iter().map(|(minute, _)| minute.number() - start.number()).collect();
        assert_eq!(minutes, left, "the current minute, and later ones");
    }
    let pruned = fixture.database.prune(Prunable::Forecast, fixture.now(), 2).await.expect("prune answers");
    assert_eq!(pruned, Pruned::default(), "there is no more");
}

/// With many rows, and rows that stay among them.
pub async fn many_steps_find_everything_to_prune(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let tenants = ["acme", "other"];
    let wish = |number: usize| task().tenant(tenants[number % 2]).key(&format!("k{number}"), 1);
    let stored = fixture.insert((0..MANY).map(|number| wish(number).build()).collect()).await;
    let mut running = Vec::new();
    for lane in [stored[0].lane.id, stored[1].lane.id] {
        loop {
            let leased = fixture.lease(lane, 1_000).await;
            if leased.is_empty() {
                break;
            }
            running.extend(leased);
        }
    }
    running.sort_unstable_by_key(|task| task.id);
    assert_eq!(running.len(), MANY);
    // A third is old, a third finishes later, a third runs.
    let third = |number: usize| running.iter().skip(number).step_by(3);
    settle(&fixture, third(0)).await;
    fixture.advance(1_000);
    settle(&fixture, third(1)).await;
    let over = u64::try_from(third(0).count()).expect("not so many");
    assert_eq!(prune_history(&fixture, at(1_000), 700).await, over);
    let left: BTreeSet<TaskId> = third(1).chain(third(2)).map(|task| task.id).collect();
    let mut found = BTreeSet::new();
    for tenant in tenants {
        found.extend(ids(&fixture.list(all_of(tenant), 1_000).await));
    }
    assert_eq!(found, left);
    // All keys are old, but a third belongs to live tasks.
    let finished = over + u64::try_from(third(1).count()).expect("not so many");
    assert_eq!(prune_keys(&fixture, at(1), 700).await, finished);
    assert_eq!(prune_keys(&fixture, at(1), 700).await, 0);
}

/// Submitters, workers and listings are not affected: no call fails, and no page misses or repeats
/// a task that stays.
pub async fn work_goes_on_meanwhile(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let staying = fixture.insert(task().queue("later").due(at(LONG_AFTER)).times(30)).await;
    let working = async |queue: &str| {
        for round in 0..40 {
            let stored = fixture.insert_one(task().queue(queue).key(&format!("{queue}/{round}"), 1)).await;
            let running = fixture.lease(stored.lane.id, 1).await.pop().expect("it is due");
            settle(&fixture, [&running].into_iter()).await;
        }
    };
    let is_over = AtomicBool::new(false);
    let work = async {
        tokio::join!(working("a"), working("b"), working("c"));
        is_over.store(true, Ordering::Relaxed);
    };
    let removing = async {
        while !is_over.load(Ordering::Relaxed) {
            prune_history(&fixture, at(1), 7).await;
            prune_keys(&fixture, at(1), 7).await;
        }
    };
    let listing = async {
        while !is_over.load(Ordering::Relaxed) {
            let listed = fixture.list(all_of(TENANT), 4).await;
            let mut seen: Vec<TaskId> =
                listed.iter().filter(|task| task.state() == State::Pending).map(|task| task.id).collect();
            seen.retain(|id| staying.iter().any(|task| task.id == *id));
            seen.reverse();
            assert_eq!(seen, ids(&staying), "each once, the newest first");
        }
    };
    tokio::join!(work, removing, listing);
    prune_history(&fixture, at(1), 100).await;
    let mut left = ids(&fixture.list(all_of(TENANT), 100).await);
    left.reverse();
    assert_eq!(left, ids(&staying));
    assert_eq!(fixture.counts().await.into_values().sum::<u64>(), 30);
}

/// Tasks that finish now: completed, dead-lettered, cancelled and expired.
async fn one_of_each_end(fixture: &StoreFixture<'_>) -> Vec<Task> {
    let completed = fixture.running(task().queue("a").payload("1")).await;
    let dead = fixture.running(task().queue("b").payload("2")).await;
    let cancelled = fixture.insert_one(task().queue("c").due(at(LONG_AFTER)).payload("3")).await;
    let expired = fixture.insert_one(task().queue("d").payload("4")).await;
    let ended = vec![
        fixture.apply(&completed, complete(Some("\"done\""))).await,
        fixture.apply(&dead, fail_for_good(&dead)).await,
        fixture.apply(&cancelled, Event::Cancel).await,
        fixture.apply(&expired, Event::Expire).await,
    ];
    assert!(ended.iter().all(|task| task.completed_at == Some(fixture.now())));
    ended
}

/// Stores tasks and completes them now.
async fn finish(fixture: &StoreFixture<'_>, tasks: Vec<NewTask>) -> Vec<Task> {
    let mut ended = Vec::new();
    for stored in fixture.insert(tasks).await {
        let running = fixture.lease(stored.lane.id, 1).await.pop().expect("it is due");
        let done = fixture.apply(&running, complete(None)).await;
        assert_eq!(done.state(), State::Completed);
        ended.push(done);
    }
    ended
}

async fn settle<'t>(fixture: &StoreFixture<'_>, tasks: impl Iterator<Item = &'t Task>) {
    let changes: Vec<_> = tasks.map(|task| fixture.change(task, complete(None))).collect();
    let applied = fixture.store.apply(changes).await.expect("apply answers");
    assert!(applied.iter().all(is_done));
}

async fn submit(fixture: &StoreFixture<'_>, task: TaskBuilder) -> Inserted {
    fixture.store.insert(vec![task.build()]).await.expect("insert answers").pop().expect("one answer")
}

/// Prunes until there is no more. Returns how many rows were removed.
async fn prune_history(fixture: &StoreFixture<'_>, before: Timestamp, limit: usize) -> u64 {
    steps(limit, async || {
        fixture.database.prune(Prunable::History, before, limit).await.expect("prune_history answers")
    })
    .await
}

/// The same for keys.
async fn prune_keys(fixture: &StoreFixture<'_>, before: Timestamp, limit: usize) -> u64 {
    steps(limit, async || fixture.database.prune(Prunable::Keys, before, limit).await.expect("prune_keys answers"))
        .await
}

async fn steps(limit: usize, step: impl AsyncFn() -> Pruned) -> u64 {
    let mut removed = 0;
    for _ in 0..10_000 {
        let pruned = step().await;
        assert!(usize::try_from(pruned.removed).is_ok_and(|removed| removed <= limit), "{pruned:?} of {limit}");
        removed += pruned.removed;
        if !pruned.more {
            return removed;
        }
    }
    panic!("the steps do not end");
}
