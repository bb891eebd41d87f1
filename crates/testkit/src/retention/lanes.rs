//! Removing lanes that are empty and that nothing names.

use std::sync::atomic::{AtomicBool, Ordering};

use punctual_core::lane::LaneId;
use punctual_core::state::Event;
use punctual_core::task::{Edit, Task};
use punctual_core::upkeep::Prunable;

use super::{LONG_AFTER, prune_history, steps};
use crate::fixtures::{TaskBuilder, at, task};
use crate::store::{StoreFactory, StoreFixture, assert_same, complete, fail_for_good, ids, is_done};

/// The second round that finds them empty removes them, in steps, and then there is no more.
pub async fn empty_lanes_are_removed(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    for number in 0..20 {
        cancelled(&fixture, to(number)).await;
    }
    let staying = fixture.insert_one(task().queue("staying").due(at(LONG_AFTER))).await;
    prune_history(&fixture, at(LONG_AFTER), 100).await;
    assert_eq!(prune_lanes(&fixture, 100).await, 0, "the first round only marks them");
    assert_eq!(prune_lanes(&fixture, 3).await, 20);
    assert_eq!(prune_lanes(&fixture, 3).await, 0, "there is no more");
    assert_same(&fixture.get(&staying).await, &staying);
}

/// Live tasks, later tasks and finished tasks keep their lanes.
pub async fn lanes_in_use_are_kept(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let waiting = fixture.insert_one(task().queue("waiting").due(at(LONG_AFTER))).await;
    let running = fixture.running(task().queue("running")).await;
    let dead = fixture.running(task().queue("dead")).await;
    let dead = fixture.apply(&dead, fail_for_good(&dead)).await;
    let done = fixture.running(task().queue("done")).await;
    let done = fixture.apply(&done, complete(Some("1"))).await;
    cancelled(&fixture, task().queue("reused")).await;
    last(&fixture).await;
    fixture.advance(1);
    for _ in 0..3 {
        assert_eq!(prune_lanes(&fixture, 100).await, 0);
    }
    // A lane that was found empty is used again, and is empty again.
    prune_history(&fixture, at(0), 100).await;
    let reused = cancelled(&fixture, task().queue("reused")).await;
    assert_eq!(prune_lanes(&fixture, 100).await, 0);
    for task in [&waiting, &running, &dead, &done, &reused] {
        assert_same(&fixture.get(task).await, task);
    }
    let driven = fixture.apply(&dead, Event::Redrive(None)).await;
    assert_eq!(ids(&fixture.lease(driven.lane.id, 1).await), [dead.id], "it works as before");
    // The history goes, and with it what names two of them.
    prune_history(&fixture, at(LONG_AFTER), 100).await;
    assert_eq!(prune_lanes(&fixture, 100).await, 2);
    for task in [&waiting, &running] {
        assert_same(&fixture.get(task).await, task);
    }
}

/// The store has the removed lane in its caches, and its number is not given to another lane.
pub async fn a_removed_lane_is_made_again(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let before = cancelled(&fixture, task().queue("q")).await.lane.id;
    let edited = fixture.insert_one(task().queue("edited").priority(3).due(at(LONG_AFTER))).await;
    let moved = cancelled(&fixture, task().queue("edited").priority(4)).await.lane.id;
    last(&fixture).await;
    prune_history(&fixture, at(LONG_AFTER), 100).await;
    prune_lanes(&fixture, 100).await;
    assert_eq!(prune_lanes(&fixture, 100).await, 2);
    assert!(fixture.lease(before, 5).await.is_empty(), "a claim finds nothing there");

    let again = fixture.insert_one(task().queue("q")).await;
    let other = fixture.insert_one(task().queue("other")).await;
    assert!(again.lane.id != before && other.lane.id != before, "numbers are not given twice");
    assert_eq!(ids(&fixture.lease(again.lane.id, 5).await), [again.id]);
    let edited = fixture.apply(&edited, priority(4)).await;
    assert_ne!(edited.lane.id, moved);
    assert_eq!(edited.lane.key.priority, 4);
    let fixture = fixture.reopen().await;
    for task in [&other, &edited] {
        assert_same(&fixture.get(task).await, task);
    }
}

/// Tasks come and go in lanes that are removed all the time: none is lost or refused.
pub async fn tasks_come_while_lanes_are_removed(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let is_over = AtomicBool::new(false);
    let working = async |first: usize| {
        for round in 0..60 {
            let stored = fixture.insert_one(to(first + round % 3)).await;
            let running = fixture.lease(stored.lane.id, 1).await;
            assert_eq!(ids(&running), [stored.id], "it is in its lane");
            let change = fixture.change(&running[0], complete(None));
            assert!(is_done(&fixture.apply_change(change).await));
        }
    };
    let work = async {
        tokio::join!(working(0), working(10), working(20));
        is_over.store(true, Ordering::Relaxed);
    };
    let removing = async {
        let mut removed = 0;
        while !is_over.load(Ordering::Relaxed) {
            prune_history(&fixture, at(LONG_AFTER), 100).await;
            removed += prune_lanes(&fixture, 100).await;
        }
        removed
    };
    tokio::join!(work, removing);
    assert!(fixture.counts().await.is_empty());
}

fn to(number: usize) -> TaskBuilder {
    task().push(&format!("http://host-{number}:80"))
}

/// A task that is in no lane any more, but in the history.
async fn cancelled(fixture: &StoreFixture<'_>, task: TaskBuilder) -> Task {
    let stored = fixture.insert_one(task.due(at(LONG_AFTER))).await;
    fixture.apply(&stored, Event::Cancel).await
}

/// A live task in a lane that is newer than the others: a store may keep its newest lane.
async fn last(fixture: &StoreFixture<'_>) -> LaneId {
    fixture.insert_one(task().queue("last").due(at(LONG_AFTER))).await.lane.id
}

fn priority(priority: u8) -> Event<'static> {
    Event::Edit(Box::new(Edit { priority: Some(priority), ..Edit::default() }))
}

/// One round.
async fn prune_lanes(fixture: &StoreFixture<'_>, limit: usize) -> u64 {
    let now = fixture.now();
    steps(limit, async || fixture.database.prune(Prunable::Lanes, now, limit).await.expect("prune_lanes answers")).await
}
