//! The sentences about re-drives that revive dependents.

use punctual_core::state::{Event, State};
use punctual_core::task::{Idempotency, OnDependencyFailure, Task};
use punctual_core::trail::{Actor, Step};

use super::children::{child_of, end, parent};
use super::keys::remove_history;
use super::{state_of, take};
use crate::fixtures::{TENANT, at, task};
use crate::store::{StoreFactory, StoreFixture, created};

/// Re-drives a dead letter with its dependents, and resolves.
async fn redrive(fixture: &StoreFixture<'_>, dead: &Task) -> Task {
    let dead = fixture.get(dead).await;
    let back = fixture.apply(&dead, Event::RedriveWithDependents(None)).await;
    fixture.resolve().await;
    back
}

/// A chain, a wide family and a child that fails instead, each as often as its parent is re-driven.
pub async fn a_redrive_revives_its_dependents_if_asked_to(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut root = parent(&fixture, "root").await;
    let mut chain = vec![fixture.insert_one(child_of(&[&root]).expires_at(at(60_000))).await];
    for _ in 0..5 {
        chain.push(fixture.insert_one(child_of(&chain[chain.len() - 1..].iter().collect::<Vec<_>>())).await);
    }
    let wide = fixture.insert((0..500).map(|_| child_of(&[&root]).queue("wide").build()).collect()).await;
    let failing = child_of(&[&root]).on_dependency_failure(OnDependencyFailure::Fail).queue("failing");
    let failing = fixture.insert_one(failing).await;
    let other = fixture.insert_one(child_of(&[&root]).queue("other")).await;
    fixture.apply(&other, Event::Cancel).await;
    for _ in 0..2 {
        root = end(&fixture, &root, State::DeadLettered).await;
        fixture.resolve().await;
        for child in chain.iter().chain(&wide) {
            assert_eq!(state_of(&fixture, child).await, State::Cancelled);
        }
        assert_eq!(state_of(&fixture, &failing).await, State::Failed);
        fixture.advance(120_000);
        root = redrive(&fixture, &root).await;
        for child in chain.iter().chain(&wide).chain([&failing]) {
            let child = fixture.get(child).await;
            assert_eq!((child.state(), child.expires_at), (State::Blocked, None));
            let step = child.trail.last().expect("a step");
            assert_eq!((step.step, step.actor), (Step::Revived, Actor::Resolver));
        }
        assert_eq!(state_of(&fixture, &other).await, State::Cancelled, "its client cancelled it");
    }
    end(&fixture, &root, State::Completed).await;
    let mut expected: Vec<&Task> = wide.iter().collect();
    for batch in expected.chunks_mut(100) {
        take(&fixture, wide[0].lane.id, batch).await;
    }
    for child in &chain {
        let running = take(&fixture, child.lane.id, &[child]).await.remove(0);
        fixture.apply(&running, crate::store::complete(None)).await;
    }
    assert_eq!(fixture.counts().await[&(failing.lane.id, State::Pending)], 1);
}

/// A diamond, a parent that has completed, and one that is a dead letter itself.
pub async fn a_revived_task_waits_for_all_its_parents(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let (top, done, dead) =
        (parent(&fixture, "top").await, parent(&fixture, "done").await, parent(&fixture, "dead").await);
    let left = fixture.insert_one(child_of(&[&top]).queue("left")).await;
    let right = fixture.insert_one(child_of(&[&top]).queue("right")).await;
    let bottom = fixture.insert_one(child_of(&[&left, &right, &done]).queue("bottom")).await;
    let hopeless = fixture.insert_one(child_of(&[&top, &dead]).queue("hopeless")).await;
    let top = end(&fixture, &top, State::DeadLettered).await;
    fixture.resolve().await;
    end(&fixture, &done, State::Completed).await;
    let dead = end(&fixture, &dead, State::DeadLettered).await;
    let top = redrive(&fixture, &top).await;
    for child in [&left, &right, &bottom] {
        assert_eq!(state_of(&fixture, child).await, State::Blocked);
    }
    assert_eq!(state_of(&fixture, &hopeless).await, State::Cancelled, "its other parent is a dead letter");
    end(&fixture, &top, State::Completed).await;
    fixture.resolve().await;
    end(&fixture, &left, State::Completed).await;
    fixture.resolve().await;
    assert_eq!(state_of(&fixture, &bottom).await, State::Blocked);
    end(&fixture, &right, State::Completed).await;
    take(&fixture, bottom.lane.id, &[&bottom]).await;
    // Every parent but one has completed by now.
    let dead = redrive(&fixture, &dead).await;
    assert_eq!(state_of(&fixture, &hopeless).await, State::Blocked);
    end(&fixture, &dead, State::Completed).await;
    take(&fixture, hopeless.lane.id, &[&hopeless]).await;
}

/// That parent completed while its child was cancelled, and its note is not yet worked off.
pub async fn a_revived_task_forgets_the_parents_it_waited_for(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let (first, second) = (parent(&fixture, "first").await, parent(&fixture, "second").await);
    let child = fixture.insert_one(child_of(&[&first, &second])).await;
    let first = end(&fixture, &first, State::DeadLettered).await;
    fixture.resolve().await;
    assert_eq!(state_of(&fixture, &child).await, State::Cancelled);
    end(&fixture, &second, State::Completed).await;
    let first = redrive(&fixture, &first).await;
    assert_eq!(state_of(&fixture, &child).await, State::Blocked, "its first parent has not run again");
    end(&fixture, &first, State::Completed).await;
    take(&fixture, child.lane.id, &[&child]).await;
}

/// Nor is a task that was pruned, or one of whose parents was: nobody knows how that one ended.
pub async fn a_replaced_task_is_not_revived(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let root = parent(&fixture, "root").await;
    let (old, kept) = (child_of(&[&root]).key("k", 1), child_of(&[&root]).key("kept", 1));
    let (old, kept) = (fixture.insert_one(old).await, fixture.insert_one(kept).await);
    let root = end(&fixture, &root, State::DeadLettered).await;
    fixture.resolve().await;
    let mut new = task().key("k", 1).queue("new").build();
    new.idempotency = new.idempotency.map(|of| Idempotency { replace_final: true, ..of });
    let new = created(fixture.store.insert(vec![new]).await.expect("insert answers").remove(0));
    let root = redrive(&fixture, &root).await;
    assert_eq!(state_of(&fixture, &old).await, State::Cancelled);
    assert_eq!(state_of(&fixture, &kept).await, State::Blocked);
    assert_eq!(state_of(&fixture, &new).await, State::Pending);

    let root = end(&fixture, &root, State::DeadLettered).await;
    fixture.resolve().await;
    fixture.advance(1_000_000_000_000);
    let back = fixture.apply(&root, Event::Redrive(None)).await;
    remove_history(&fixture).await;
    let root = end(&fixture, &back, State::DeadLettered).await;
    redrive(&fixture, &root).await;
    assert!(fixture.find(TENANT, kept.id).await.is_none(), "it was pruned");
}
