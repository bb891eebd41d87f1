//! Finished tasks: they are in the history, readable as before, and a re-drive brings them back.

use std::collections::BTreeSet;

use punctual_core::ids::TaskId;
use punctual_core::state::{Event, State};
use punctual_core::store::{Applied, Filter};
use punctual_core::task::Task;

use super::{StoreFactory, StoreFixture, all_of, assert_same, complete, fail_for_good, ids, is_done};
use crate::fixtures::{START, TENANT, at, json, task};

/// Every final state takes a task out of the live ones and keeps it readable; only a dead letter
/// comes back.
pub async fn apply_moves_final_tasks_to_the_history_and_back(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let lane = fixture.insert_one(task().due(at(60_000))).await.lane.id;
    let completed = fixture.running(task().payload("1")).await;
    let dead = fixture.running(task().payload("2")).await;
    let stopped = fixture.running(task().payload("3")).await;
    let stopped = fixture.apply(&stopped, Event::Cancel).await;
    let cancelled = fixture.insert_one(task().payload("4")).await;
    let expired = fixture.insert_one(task().payload("5")).await;
    fixture.advance(10);
    let finals: Vec<Task> = vec![
        fixture.apply(&completed, complete(Some("\"done\""))).await,
        fixture.apply(&dead, fail_for_good(&dead)).await,
        fixture.apply(&stopped, Event::Stopped).await,
        fixture.apply(&cancelled, Event::Cancel).await,
        fixture.apply(&expired, Event::Expire).await,
    ];
    let states: Vec<State> = finals.iter().map(Task::state).collect();
    assert_eq!(states, [State::Completed, State::DeadLettered, State::Cancelled, State::Cancelled, State::Failed]);
    for (task, payload) in finals.iter().zip(["1", "2", "3", "4", "5"]) {
        assert_eq!((task.completed_at, task.hold.as_ref()), (Some(at(10)), None));
        assert_eq!((task.body.payload.get(), task.lane.id), (payload, lane));
    }
    assert_eq!(fixture.counts().await.into_iter().collect::<Vec<_>>(), [((lane, State::Pending), 1)]);
    assert!(fixture.lease(lane, 10).await.is_empty(), "a finished task is not claimed");
    let listed = fixture.list(all_of(TENANT), 2).await;
    assert_eq!(listed.len(), 6, "each is listed once");
    for task in &finals {
        assert_same(&fixture.get(task).await, task);
        assert_same(listed.iter().find(|listed| listed.id == task.id).expect("it is listed"), task);
        let of_state = Filter { states: vec![task.state()], ..all_of(TENANT) };
        assert!(ids(&fixture.list(of_state, 10).await).contains(&task.id));
    }

    let redriven = fixture.apply(&finals[1], Event::Redrive(None)).await;
    assert_eq!((redriven.state(), redriven.due_at, redriven.completed_at), (State::Pending, at(10), None));
    assert_eq!(fixture.list(all_of(TENANT), 10).await.len(), 6, "it is listed once, not in both places");
    assert_eq!(fixture.counts().await.into_iter().collect::<Vec<_>>(), [((lane, State::Pending), 2)]);
    assert_eq!(ids(&fixture.lease(lane, 10).await), [redriven.id]);
}

/// Nothing but its state, version and trail changes.
pub async fn apply_purges_a_dead_letter_in_the_history(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let running = fixture.running(task().payload("1").label("l", "v")).await;
    let dead = fixture.apply(&running, fail_for_good(&running)).await;
    let redrive = fixture.change(&dead, Event::Redrive(None));
    let purge = fixture.change(&dead, Event::Purge);
    let live = fixture.insert_one(task()).await;
    fixture.advance(10);
    assert!(matches!(fixture.apply_change(purge.clone()).await, Applied::Done(None)));
    let purged = fixture.get(&dead).await;
    assert_eq!((purged.state(), purged.position.version), (State::Cancelled, dead.position.version + 1));
    assert_eq!((purged.completed_at, purged.position.attempts), (dead.completed_at, dead.position.attempts));
    assert_eq!(purged.trail.last_error(), dead.trail.last_error());
    assert_eq!(purged.trail.entries().count(), dead.trail.entries().count() + 1);
    for late in [redrive, purge] {
        assert!(matches!(fixture.apply_change(late).await, Applied::Lost), "it was purged before");
    }
    let of = |state| fixture.list(Filter { states: vec![state], ..all_of(TENANT) }, 10);
    assert_eq!(ids(&of(State::DeadLettered).await), []);
    let cancelled = of(State::Cancelled).await;
    assert_eq!(ids(&cancelled), [dead.id]);
    assert_same(&cancelled[0], &purged);
    assert_eq!(fixture.counts().await.into_iter().collect::<Vec<_>>(), [((live.lane.id, State::Pending), 1)]);
}

/// A re-driven dead letter counts attempts from zero, keeps its trail and takes a new payload; many
/// times over.
pub async fn redrive_starts_over(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut task = fixture.insert_one(task().key("k", 1).label("l", "v").payload("0")).await;
    let (lane, mut payload) = (task.lane.id, "0".to_owned());
    for round in 1..6_usize {
        fixture.advance(10);
        let running = fixture.lease(lane, 1).await.pop().expect("it is due");
        assert_eq!(running.position.attempts, 1, "the count begins at zero");
        assert_eq!(running.body.payload.get(), payload);
        let dead = fixture.apply(&running, fail_for_good(&running)).await;
        assert!(fixture.counts().await.is_empty());
        fixture.advance(10);
        let new_payload = round.is_multiple_of(2).then(|| json(&round.to_string()));
        if let Some(new) = &new_payload {
            new.get().clone_into(&mut payload);
        }
        let redrive = Event::Redrive(new_payload);
        let change = fixture.change(&dead, redrive.clone());
        task = fixture.apply(&dead, redrive).await;
        assert!(!is_done(&fixture.apply_change(change).await), "re-driven twice by one change");
        assert_eq!((task.position.attempts, task.position.crashes), (0, 0));
        assert_eq!((task.due_at, task.execute_at), (fixture.now(), START));
        assert_eq!(task.trail.runs(task.id).len(), round, "its earlier runs are kept");
        assert_eq!((task.body.metadata["l"].as_str(), task.body.idempotency_key.as_deref()), ("v", Some("k")));
        let found: BTreeSet<TaskId> = ids(&fixture.list(all_of(TENANT), 10).await).into_iter().collect();
        assert_eq!(found, BTreeSet::from([task.id]));
    }
    let late = fixture.change(&task, Event::Cancel);
    assert!(matches!(fixture.apply_change(late).await, Applied::Done(None)));
}
