//! Every await may be dropped: a request that is cancelled, a timeout, a shutdown.

use std::sync::Arc;

use punctual_core::state::State;
use punctual_core::store::{Claim, Inserted};
use punctual_core::task::NewTask;

use super::{StoreFactory, StoreFixture, VISIBILITY_MILLIS, complete, dispatcher, ids};
use crate::fixtures::{TENANT, task};

/// A dropped call has happened as a whole or not at all, and the store continues.
pub async fn a_dropped_call_happened_or_not(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    for patience in [0, 1, 2, 5, 20, 100] {
        drops_an_insert(&fixture, patience).await;
        drops_a_claim_and_a_settle(&fixture, patience).await;
    }
    // Many calls at once, all dropped: nothing stays locked.
    let calls: Vec<_> = (0..50)
        .map(|number: usize| {
            let store = Arc::clone(&fixture.store);
            let batch = task().queue("many").times(20);
            tokio::spawn(async move { given_up_after(number % 4, store.insert(batch)).await.is_none() })
        })
        .collect();
    for call in calls {
        call.await.expect("a caller does not panic");
    }
    fixture.store.check().await.expect("the store still works");
    fixture.insert_one(task()).await;
}

async fn drops_an_insert(fixture: &StoreFixture<'_>, patience: usize) {
    let of = |number: usize| task().queue("insert").key(&format!("{patience}/{number}"), 1).build();
    let batch: Vec<NewTask> = (0..50).map(of).collect();
    drop(given_up_after(patience, fixture.store.insert(batch)).await);
    let again: Vec<NewTask> = (0..50).map(of).collect();
    let answers = fixture.store.insert(again).await.expect("insert answers");
    let created = answers.iter().filter(|answer| matches!(answer, Inserted::Created(_))).count();
    let replayed = answers.iter().filter(|answer| matches!(answer, Inserted::Replayed(_))).count();
    assert!((created, replayed) == (50, 0) || (created, replayed) == (0, 50), "{created} new, {replayed} replayed");
}

async fn drops_a_claim_and_a_settle(fixture: &StoreFixture<'_>, patience: usize) {
    let stored = fixture.insert(task().queue(&format!("claim {patience}")).due(fixture.now()).times(50)).await;
    let lane = stored[0].lane.id;
    let claim = Claim { lanes: vec![(lane, 50)], limit: 50, claimant: dispatcher() };
    drop(given_up_after(patience, fixture.store.claim(vec![claim])).await);
    let leased = fixture.lease(lane, 50).await;
    let queued = fixture.counts().await.get(&(lane, State::Queued)).copied().unwrap_or(0);
    assert!(
        (leased.len(), queued) == (50, 0) || (leased.len(), queued) == (0, 50),
        "{queued} were claimed by the call that was dropped, {} after it",
        leased.len()
    );
    fixture.advance(VISIBILITY_MILLIS + 1);
    if queued > 0 {
        let overdue = fixture.overdue(vec![]).await;
        assert!(stored.iter().all(|task| overdue.contains(&task.id)), "a task of the dropped claim is not found");
        return;
    }
    let changes: Vec<_> = leased.iter().map(|task| fixture.change(task, complete(Some("1")))).collect();
    drop(given_up_after(patience, fixture.store.apply(changes.clone())).await);
    let answers = fixture.store.apply(changes).await.expect("apply answers");
    let done = answers.iter().filter(|answer| super::is_done(answer)).count();
    assert!(done == 0 || done == 50, "{done} of 50 were settled by the call that was dropped");
    let read = fixture.store.get(TENANT, ids(&stored)).await.expect("get answers");
    assert!(read.into_iter().flatten().all(|task| task.state() == State::Completed));
}

/// Polls a call this many times, then drops it.
async fn given_up_after<T>(polls: usize, call: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        answer = call => Some(answer),
        () = async {
            for _ in 0..polls {
                tokio::task::yield_now().await;
            }
        } => None,
    }
}
