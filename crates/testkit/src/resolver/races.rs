//! Concurrent resolvers, and restarts.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::state::{By, Event, State, transition};
use punctual_core::store::Inserted;
use punctual_core::trail::Actor;
use tokio::sync::Barrier;

use super::{claimable, state_of, take};
use crate::eventually::eventually;
use crate::fixtures::{TENANT, at, task};
use crate::store::{StoreFactory, StoreFixture, complete, created, ids};

/// Rounds of a race.
const ROUNDS: usize = 200;

/// Child and parent race hundreds of times.
pub async fn a_parent_that_ends_meanwhile_wakes_its_child(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut children = Vec::new();
    for _ in 0..ROUNDS {
        let parent = fixture.running(task().queue("parents")).await;
        let barrier = Arc::new(Barrier::new(3));
        let child = task().queue("children").depends_on(&[parent.id]).build();
        let end = fixture.change(&parent, complete(None));
        let submit = tokio::spawn({
            let (store, barrier) = (Arc::clone(&fixture.store), Arc::clone(&barrier));
            async move {
                barrier.wait().await;
                store.insert(vec![child]).await.expect("insert answers").remove(0)
            }
        });
        let settle = tokio::spawn({
            let (store, barrier) = (Arc::clone(&fixture.store), Arc::clone(&barrier));
            async move {
                barrier.wait().await;
                store.apply(vec![end]).await.expect("apply answers")
            }
        });
        let resolve = tokio::spawn({
            let (resolver, barrier) = (Arc::clone(&fixture.database), Arc::clone(&barrier));
            async move {
                barrier.wait().await;
                resolver.resolve().await.expect("resolve answers")
            }
        });
        children.push(created(submit.await.expect("it does not panic")));
        settle.await.expect("it does not panic");
        resolve.await.expect("it does not panic");
    }
    fixture.resolve().await;
    for child in &children {
        assert_eq!(state_of(&fixture, child).await, State::Pending, "a wake-up was lost");
    }
    assert_eq!(ids(&fixture.lease(children[0].lane.id, ROUNDS * 2).await).len(), ROUNDS);
}

/// With any number of resolvers a child is released once, and a key has one turn.
pub async fn resolvers_share_the_work(factory: &dyn StoreFactory) {
    const PARENTS: usize = 600;
    let fixture = StoreFixture::open(factory).await;
    let parents = fixture.insert(task().queue("parents").times(PARENTS)).await;
    let all: Vec<_> = parents.iter().map(|task| task.id).collect();
    let children = fixture.insert((0..5).map(|_| task().depends_on(&all).build()).collect()).await;
    let keyed = fixture
        .insert((0..100).map(|n| task().queue("keyed").ordering_key(&format!("k{}", n % 10)).build()).collect())
        .await;
    let workers = (0..4).map(|worker| {
        let (store, resolver) = (Arc::clone(&fixture.store), Arc::clone(&fixture.database));
        let (parents, now, node) = (parents.clone(), fixture.now(), fixture.node);
        tokio::spawn(async move {
            let by = By { now, node, actor: Actor::Client };
            let mut tasks = 0;
            for some in parents.chunks(30).skip(worker).step_by(4) {
                let cancel = |task: &punctual_core::task::Task| {
                    (task.id, transition(&task.position, Event::Cancel, &by).expect("it waits"))
                };
                store.apply(some.iter().map(cancel).collect()).await.expect("apply answers");
                tasks += resolver.resolve().await.expect("resolve answers").tasks;
            }
            tasks
        })
    });
    let mut tasks = 0;
    for worker in workers.collect::<Vec<_>>() {
        tasks += worker.await.expect("it does not panic");
    }
    tasks += fixture.resolve().await;
    assert_eq!(tasks, children.len() + 10, "children that were cancelled, and keys whose turn was given");
    for child in &children {
        let child = fixture.get(child).await;
        assert_eq!((child.state(), child.position.version), (State::Cancelled, 2));
    }
    assert_eq!(claimable(&fixture, keyed[0].lane.id).await.len(), 10, "one of each key");
}

/// All notes that were left when the process ended.
pub async fn notes_outlive_the_process(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let parent = fixture.running(task().queue("parent")).await;
    let child = fixture.insert_one(task().depends_on(&[parent.id])).await;
    let first = fixture.insert_one(task().queue("keyed").ordering_key("k").due(at(-1))).await;
    let second = fixture.insert_one(task().queue("keyed").ordering_key("k")).await;
    fixture.apply(&parent, complete(None)).await;
    let fixture = fixture.reopen().await;
    take(&fixture, child.lane.id, &[&child]).await;
    let running = take(&fixture, first.lane.id, &[&first]).await.remove(0);
    fixture.apply(&running, complete(None)).await;
    let fixture = fixture.reopen().await;
    take(&fixture, second.lane.id, &[&second]).await;
}

/// By the call itself, and by the hint that there are notes.
pub async fn resolve_returns_what_may_be_claimed(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    fixture.resolve().await;
    let parent = fixture.running(task().queue("parent")).await;
    let answer = fixture.store.insert(vec![task().depends_on(&[parent.id]).due(at(5_000)).build()]).await;
    let Inserted::Created(child) = answer.expect("insert answers").remove(0) else { panic!("it is new") };
    let found = async || {
        tokio::time::timeout(Duration::from_secs(20), fixture.database.wait_for_notes())
            .await
            .expect("the resolver is notified");
    };
    fixture.apply(&parent, complete(None)).await;
    found().await;
    let resolved = fixture.database.resolve().await.expect("resolve answers");
    let waiting: Vec<_> = resolved.waiting.iter().map(|(lane, due_at)| (lane.id, *due_at)).collect();
    assert_eq!(waiting, [(child.lane.id, at(5_000))]);
    let keyed = fixture.insert_one(task().queue("keyed").ordering_key("k")).await;
    found().await;
    eventually("its turn is reported", Duration::from_secs(20), async || {
        let resolved = fixture.database.resolve().await.expect("resolve answers");
        let waiting: Vec<_> = resolved.waiting.iter().map(|(lane, due_at)| (lane.id, *due_at)).collect();
        if waiting == [(keyed.lane.id, keyed.due_at)] { Ok(()) } else { Err(format!("{waiting:?}")) }
    })
    .await;
    let heads = fixture.heads(at(10_000), 10).await;
    assert!(heads.iter().any(|(lane, _, due_at)| (*lane, *due_at) == (keyed.lane.id, keyed.due_at)), "{heads:?}");
    assert_eq!(fixture.find(TENANT, keyed.id).await.expect("it is there").state(), State::Pending);
}
