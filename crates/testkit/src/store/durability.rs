//! Answered writes survive closing and opening the store. (The black-box tests, which have a
//! process to kill, show that they survive `kill -9` too.)

use punctual_core::state::{Event, State};
use punctual_core::task::Task;

use super::insert::full;
use super::{StoreFactory, StoreFixture, assert_same, complete, fail, fail_for_good, ids};
use crate::fixtures::{at, json, task};

/// A task that `insert` returned is still there, whole, and can run.
pub async fn insert_is_durable_before_it_returns(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut stored = fixture.insert(task().queue("many").times(1_000)).await;
    stored.push(fixture.insert_one(full()).await);
    stored.push(fixture.insert_one(task().due(at(3_600_000))).await);
    let fixture = fixture.reopen().await;
    for task in &stored {
        assert_same(&fixture.get(task).await, task);
    }
    assert_eq!(fixture.counts().await.into_values().sum::<u64>(), 1_002);
    assert_eq!(ids(&fixture.lease(stored[0].lane.id, 2_000).await), ids(&stored[..1_000]));
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.heads(at(3_600_001), 10).await.len(), 2, "a lease was forgotten, or a waiting task");
}

/// Claims, starts, changes, heartbeats and the history are unchanged.
pub async fn every_write_is_durable(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let mut kept: Vec<Task> = Vec::new();

    let waiting = fixture.insert_one(task().queue("edited")).await;
    let edit = punctual_core::task::Edit { payload: Some(json("\"new\"")), priority: Some(1), ..Default::default() };
    kept.push(fixture.apply(&waiting, Event::Edit(Box::new(edit))).await);

    let queued = fixture.insert_one(task().queue("queued").push("http://a.test:80")).await;
    kept.extend(fixture.dispatch(queued.lane.id, 1).await);

    let started = fixture.insert_one(task().queue("started").push("http://b.test:80")).await;
    let claimed = fixture.dispatch(started.lane.id, 1).await.pop().unwrap();
    kept.push(fixture.start(claimed.id, claimed.position.version).await.expect("it is queued"));

    let leased = fixture.running(task().queue("leased")).await;
    fixture.advance(1_000);
    fixture.beat(&leased, leased.position.version, Some("0.5"), Some("{\"at\": 7}")).await.expect("it holds the task");
    kept.push(fixture.get(&leased).await);

    let retried = fixture.running(task().queue("retried")).await;
    kept.push(fixture.apply(&retried, fail(&retried)).await);

    let asked = fixture.running(task().queue("asked")).await;
    kept.push(fixture.apply(&asked, Event::Cancel).await);

    let done = fixture.running(task().queue("done")).await;
    kept.push(fixture.apply(&done, complete(Some("{\"ok\": true}"))).await);

    let dead = fixture.running(task().queue("dead")).await;
    kept.push(fixture.apply(&dead, fail_for_good(&dead)).await);

    let redriven = fixture.running(task().queue("redriven")).await;
    let redriven = fixture.apply(&redriven, fail_for_good(&redriven)).await;
    kept.push(fixture.apply(&redriven, Event::Redrive(Some(json("2")))).await);

    for task in &kept {
        assert_same(&fixture.get(task).await, task);
    }
    let counts = fixture.counts().await;
    let fixture = fixture.reopen().await;
    for task in &kept {
        assert_same(&fixture.get(task).await, task);
    }
    assert_eq!(fixture.counts().await, counts);

    let leased = kept[3].clone();
    assert_eq!(leased.state(), State::Running);
    let fixture = fixture.reopen().await;
    let done = fixture.apply(&leased, complete(None)).await;
    assert_eq!(done.state(), State::Completed, "a pull worker's run outlives our process");
}
