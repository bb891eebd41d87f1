//! `claim` beside concurrent calls for the same tasks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_core::clock::Clock;
use punctual_core::ids::TaskId;
use punctual_core::state::{By, Event, State, transition};
use punctual_core::store::{Claim, Store};
use punctual_core::task::Edit;
use punctual_core::trail::Actor;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{StoreFactory, StoreFixture, dispatcher, ids, is_done, worker};
use crate::fixtures::{TENANT, at, json, task};

/// Fifty claimants on one lane: each task goes to one, and none is forgotten.
pub async fn claim_gives_each_task_to_one(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert(task().times(2_000)).await;
    let lane = stored[0].lane.id;
    let together = Arc::new(Barrier::new(50));
    let mut claimants = JoinSet::new();
    for number in 0..50 {
        let (store, together) = (Arc::clone(&fixture.store), Arc::clone(&together));
        let claimant = if number % 2 == 0 { dispatcher() } else { worker(&format!("w{number}")) };
        claimants.spawn(async move {
            let mut taken = Vec::new();
            together.wait().await;
            loop {
                let limit = 1 + number % 7;
                let claim = Claim { lanes: vec![(lane, limit)], limit, claimant: claimant.clone() };
                let claimed = store.claim(vec![claim]).await.expect("claim answers").pop().expect("one answer");
                assert!(claimed.tasks.len() <= limit);
                if claimed.tasks.is_empty() {
                    return taken;
                }
                taken.extend(ids(&claimed.tasks));
            }
        });
    }
    let taken: Vec<TaskId> = claimants.join_all().await.concat();
    let different: BTreeSet<TaskId> = taken.iter().copied().collect();
    assert_eq!(taken.len(), different.len(), "a task was given to two claimants");
    assert_eq!(different, stored.iter().map(|task| task.id).collect());
    assert!(fixture.counts().await.keys().all(|(_, state)| state.is_held()), "{:?}", fixture.counts().await);
}

/// Cancels and edits against claims: each task goes one way, and the claimant's copy is the stored
/// one.
pub async fn claim_races_with_cancel_and_edit(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert(task().times(300)).await;
    let lane = stored[0].lane.id;
    let claimer = tokio::spawn(claim_all(Arc::clone(&fixture.store), lane));
    let by = By { now: fixture.clock.now(), node: fixture.node, actor: Actor::Client };
    let mut changers = JoinSet::new();
    for (number, task) in stored.iter().enumerate() {
        let edit = Edit { payload: Some(json("\"edited\"")), execute_at: Some(at(3_600_000)), ..Edit::default() };
        let event = if number % 2 == 0 { Event::Cancel } else { Event::Edit(Box::new(edit)) };
        let change = (task.id, transition(&task.position, event, &by).expect("it waits"));
        let store = Arc::clone(&fixture.store);
        changers.spawn(async move {
            let answer = store.apply(vec![change.clone()]).await.expect("apply answers").pop().expect("one answer");
            (change.0, change.1.to, is_done(&answer))
        });
    }
    let outcomes: BTreeMap<TaskId, (State, bool)> =
        changers.join_all().await.into_iter().map(|(id, to, done)| (id, (to, done))).collect();
    let mut claimed = claimer.await.expect("the claimer does not panic");
    claimed.extend(claim_all(Arc::clone(&fixture.store), lane).await);
    let claimed: BTreeSet<TaskId> = claimed.into_iter().collect();
    let read = fixture.store.get(TENANT, ids(&stored)).await.expect("get answers");
    for task in read.into_iter().map(|task| task.expect("no task is lost")) {
        let (to, done) = outcomes[&task.id];
        assert_ne!(done, claimed.contains(&task.id), "{} went both ways or neither", task.id);
        assert_eq!(task.state(), if done { to } else { State::Running });
        assert_eq!(task.position.version, if done { 2 } else { 3 });
        assert_eq!(task.body.payload.get() == "\"edited\"", done && to == State::Pending);
    }
}

async fn claim_all(store: Arc<dyn Store>, lane: punctual_core::lane::LaneId) -> Vec<TaskId> {
    let mut taken = Vec::new();
    loop {
        let claim = Claim { lanes: vec![(lane, 3)], limit: 3, claimant: worker("w") };
        let claimed = store.claim(vec![claim]).await.expect("claim answers").pop().expect("one answer");
        if claimed.tasks.is_empty() {
            return taken;
        }
        taken.extend(ids(&claimed.tasks));
    }
}
