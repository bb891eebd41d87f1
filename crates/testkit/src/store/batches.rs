//! `apply` with many changes in one call.

use punctual_core::ids::TaskId;
use punctual_core::state::{Change, Event, Position, State, transition};
use punctual_core::store::Applied;
use punctual_core::task::{Edit, Hold, Task};

use super::{StoreFactory, StoreFixture, WORKER, complete, fail, fail_for_good, ids, is_done};
use crate::fixtures::{TENANT, at, json, task};

/// Answers are in order, a lost change does not stop the others, and the second of two changes of
/// one task sees the first.
pub async fn apply_answers_each_change_of_a_batch(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert(task().times(60)).await;
    let running = fixture.lease(stored[0].lane.id, 60).await;
    let (mut changes, mut expected) = (Vec::new(), Vec::new());
    for (number, task) in running.iter().enumerate() {
        let done = fixture.change(task, complete(Some(&number.to_string())));
        let (id, stale) = done.clone();
        let stale = stale.forged(|fields| fields.expected_version -= 1);
        match number % 4 {
            0 => {
                changes.push(done);
                expected.push(true);
            }
            1 => {
                changes.extend([(id, stale), done]);
                expected.extend([false, true]);
            }
            2 => {
                changes.extend([done.clone(), fixture.change(task, fail(task)), done]);
                expected.extend([true, false, false]);
            }
            _ => {
                changes.extend([(TaskId::new(), stale.clone()), (id, stale)]);
                expected.extend([false, false]);
            }
        }
    }
    let answers = fixture.store.apply(changes).await.expect("apply answers");
    assert_eq!(answers.iter().map(is_done).collect::<Vec<_>>(), expected);
    for (number, task) in running.iter().enumerate() {
        let after = fixture.get(task).await;
        let settled = number % 4 != 3;
        assert_eq!(after.state(), if settled { State::Completed } else { State::Running });
        assert_eq!(after.result.map(|result| result.get().to_owned()), settled.then(|| number.to_string()));
    }
}

/// A whole life in one call, through the history and back, twice: each change builds on the one
/// before it.
pub async fn apply_walks_a_life_in_one_batch(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert_one(task()).await;
    let bystander = fixture.insert_one(task()).await;
    let hold = Hold {
        worker: WORKER.into(),
        node: None,
        since: fixture.now(),
        expires_at: at(1_000),
        deadline_at: at(9_000),
        lease_millis: 1_000,
    };
    let edit = Edit { payload: Some(json("\"edited\"")), priority: Some(7), ..Edit::default() };
    let events = [
        Event::Edit(Box::new(edit)),
        Event::RunNow,
        Event::Lease(hold.clone()),
        fail_for_good(&stored),
        Event::Redrive(Some(json("\"again\""))),
        Event::Claim(hold.clone()),
        Event::GiveBack(at(0)),
        Event::Claim(hold.clone()),
        Event::Start(hold),
        fail_for_good(&stored),
        Event::Redrive(None),
        Event::Cancel,
    ];
    let (mut position, mut changes, mut states) = (stored.position, Vec::new(), Vec::new());
    for event in events {
        let change = transition(&position, event, &fixture.by()).expect("a legal life");
        position = after(&position, &change);
        states.push(change.to);
        changes.push((stored.id, change));
    }
    let answers = fixture.store.apply(changes.clone()).await.expect("apply answers");
    for ((answer, to), (_, change)) in answers.iter().zip(states).zip(&changes) {
        match answer {
            Applied::Done(place) => assert_eq!(place.is_some(), to == State::Pending, "{change:?}"),
            Applied::Lost | Applied::TooManyLanes(_) => panic!("the change to version {} was lost", change.version),
        }
    }
    let task = fixture.get(&stored).await;
    assert_eq!(task.position, position);
    assert_eq!((task.body.payload.get(), task.lane.key.priority), ("\"again\"", 7));
    let versions: Vec<u64> = task.trail.entries().map(|entry| entry.version).collect();
    assert!(versions.iter().copied().eq(1..=position.version), "{versions:?}");
    assert_eq!(ids(&fixture.list(super::all_of(TENANT), 10).await), [bystander.id, stored.id]);
    let counts = fixture.counts().await;
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), [((bystander.lane.id, State::Pending), 1)]);
}

/// The largest batch is answered in order.
pub async fn apply_takes_ten_thousand_in_order(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert(task().times(10_000)).await;
    let running: Vec<Task> = fixture.lease(stored[0].lane.id, 10_000).await;
    assert_eq!(ids(&running), ids(&stored));
    let changes = running.iter().enumerate().map(|(number, task)| {
        let (id, change) = fixture.change(task, complete(Some(&number.to_string())));
        let expected_version = if number % 5 == 0 { 1 } else { change.expected_version };
        (id, change.forged(|fields| fields.expected_version = expected_version))
    });
    let answers = fixture.store.apply(changes.collect()).await.expect("apply answers");
    assert!(answers.iter().enumerate().all(|(number, answer)| is_done(answer) == (number % 5 != 0)));
    let read = fixture.store.get(TENANT, ids(&stored)).await.expect("get answers");
    for (number, task) in read.into_iter().enumerate() {
        let result = task.expect("none is lost").result.map(|result| result.get().to_owned());
        assert_eq!(result, (number % 5 != 0).then(|| number.to_string()));
    }
    assert_eq!(fixture.counts().await.into_values().collect::<Vec<_>>(), [2_000]);
}

/// The position of a task after a change.
pub(super) fn after(before: &Position, change: &Change) -> Position {
    Position {
        state: change.to,
        version: change.version,
        attempts: change.attempts.unwrap_or(before.attempts),
        crashes: change.crashes.unwrap_or(before.crashes),
        cancel_requested: change.cancel_requested,
    }
}
