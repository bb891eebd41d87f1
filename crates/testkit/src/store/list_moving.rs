//! `list` while tasks move from the live ones to the history and back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use punctual_core::ids::TaskId;
use punctual_core::state::{By, Event, State, transition};
use punctual_core::store::{Cursor, Filter, Store};
use punctual_core::task::Task;
use punctual_core::trail::Actor;

use super::{StoreFactory, StoreFixture, all_of, complete, fail_for_good, ids};
use crate::fixtures::{Dice, TENANT, at, task};

/// Tasks that exist throughout are listed once, though they move between the pages and during them.
pub async fn list_misses_nothing_while_tasks_move(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut dice = Dice::new(5);
    let batch = (0..120).map(|_| task().due(at(-i64::try_from(dice.below(30)).unwrap())).build()).collect();
    let stored = fixture.insert(batch).await;
    let everyone: BTreeSet<TaskId> = stored.iter().map(|task| task.id).collect();
    let running = fixture.lease(stored[0].lane.id, 100).await;
    moves_between_pages(&fixture, &running, &everyone).await;
    moves_beside_pages(&fixture, &everyone).await;
}

/// After every page some tasks finish, and some dead letters are re-driven.
async fn moves_between_pages(fixture: &StoreFixture<'_>, running: &[Task], everyone: &BTreeSet<TaskId>) {
    let mut movers = running.iter();
    for by_execute_at in [false, true, false] {
        let filter = Filter { by_execute_at, ..all_of(TENANT) };
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = fixture.store.list(filter.clone(), after, 10).await.expect("list answers");
            seen.extend(ids(&page.tasks));
            let Some(next) = page.next else { break };
            after = Some(next);
            for task in movers.by_ref().take(3) {
                let dead = task.id.uuid().as_u128() % 2 == 0;
                let event = if dead { fail_for_good(task) } else { complete(None) };
                let after = fixture.apply(task, event).await;
                if dead && after.position.version % 3 != 0 {
                    fixture.apply(&after, Event::Redrive(None)).await;
                }
            }
        }
        assert_listed_once(seen, everyone);
    }
}

/// A concurrent loop moves all tasks to the dead letters and back while listings run.
async fn moves_beside_pages(fixture: &StoreFixture<'_>, everyone: &BTreeSet<TaskId>) {
    let stop = Arc::new(AtomicBool::new(false));
    let mover = {
        let (store, stop, by) = (Arc::clone(&fixture.store), Arc::clone(&stop), fixture.by());
        tokio::spawn(async move {
            let mut rounds = 0;
            while !stop.load(Ordering::SeqCst) {
                churn(store.as_ref(), &by).await;
                rounds += 1;
            }
            rounds
        })
    };
    for round in 0..30 {
        let filter = Filter { by_execute_at: round % 2 == 0, ..all_of(TENANT) };
        let (mut seen, mut after): (Vec<TaskId>, Option<Cursor>) = (Vec::new(), None);
        loop {
            let page = fixture.store.list(filter.clone(), after, 17).await.expect("list answers");
            seen.extend(ids(&page.tasks));
            let Some(next) = page.next else { break };
            after = Some(next);
        }
        assert_listed_once(seen, everyone);
        let read = fixture.store.get(TENANT, everyone.iter().copied().collect()).await.expect("get answers");
        assert!(read.iter().all(Option::is_some), "a task could not be read for a moment");
    }
    stop.store(true, Ordering::SeqCst);
    assert!(mover.await.expect("the mover does not panic") > 0, "nothing moved");
}

/// Fails waiting tasks into dead letters, and re-drives dead letters.
async fn churn(store: &dyn Store, by: &By<'_>) {
    let reaper = By { now: by.now, node: by.node, actor: Actor::Reaper };
    for (state, to_death) in [(State::Pending, true), (State::Running, true), (State::DeadLettered, false)] {
        let filter = Filter { states: vec![state], ..all_of(TENANT) };
        let page = store.list(filter, None, 40).await.expect("list answers");
        let changes = page.tasks.iter().filter_map(|task| {
            let hold = task.hold.clone().unwrap_or(punctual_core::task::Hold {
                worker: "w".into(),
                node: None,
                since: by.now,
                expires_at: at(9_000_000),
                deadline_at: at(9_000_000),
                lease_millis: 1,
            });
            let event = match (to_death, task.state()) {
                (true, State::Pending) => Event::Lease(hold),
                (true, State::Running) => fail_for_good(task),
                _ => Event::Redrive(None),
            };
            transition(&task.position, event, &reaper).ok().map(|change| (task.id, change))
        });
        store.apply(changes.collect()).await.expect("apply answers");
    }
}

fn assert_listed_once(seen: Vec<TaskId>, everyone: &BTreeSet<TaskId>) {
    let count = seen.len();
    let different: BTreeSet<TaskId> = seen.into_iter().collect();
    assert_eq!(count, different.len(), "a task is listed twice");
    let missed: Vec<_> = everyone.difference(&different).collect();
    assert!(missed.is_empty(), "{} tasks were missed: {missed:?}", missed.len());
}
