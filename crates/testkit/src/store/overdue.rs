//! `overdue`: the tasks that the reaper takes back.

use std::collections::BTreeSet;

use punctual_core::failure::FailureCause;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::state::{Event, State};
use punctual_core::task::Task;

use super::{
    GRACE_MILLIS, LEASE_MILLIS, StoreFactory, StoreFixture, VISIBILITY_MILLIS, assert_same, complete, fail, failure,
};
use crate::fixtures::{TIMEOUT_MILLIS, at, task};

/// Holds past their expiry, holds of dead nodes, waiting tasks past `expires_at`; and nothing else.
pub async fn overdue_finds_lost_holds_and_expired_tasks(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let push = |queue: &str| task().queue(queue).push("http://a.test:80");
    let leased = fixture.running(task().queue("leased")).await;
    let alive = fixture.running(task().queue("alive")).await;
    let queued = fixture.insert_one(push("queued")).await;
    let queued = fixture.dispatch(queued.lane.id, 1).await.pop().unwrap();
    let started = fixture.insert_one(push("started")).await;
    let started = fixture.dispatch(started.lane.id, 1).await.pop().unwrap();
    let started = fixture.start(started.id, started.position.version).await.expect("it is queued");
    let asked = fixture.running(task().queue("asked")).await;
    let asked = fixture.apply(&asked, Event::Cancel).await;
    let expiring = fixture.insert_one(task().queue("expiring").expires_at(at(10))).await;
    let expiring_early = fixture.insert_one(task().queue("ahead").due(at(86_400_000)).expires_at(at(10))).await;
    let good = fixture.insert_one(task().queue("good").expires_at(at(86_400_000))).await;
    let done = fixture.running(task().queue("done").expires_at(at(10))).await;
    fixture.apply(&done, complete(None)).await;
    let long_running = fixture.running(task().queue("long").expires_at(at(10))).await;
    let retried = fixture.running(task().queue("retried")).await;
    fixture.apply(&retried, fail(&retried)).await;

    let (here, elsewhere) = (fixture.node, NodeId::new(fixture.node.number() ^ 1));
    assert_eq!(fixture.overdue(vec![]).await, []);
    assert_eq!(fixture.overdue(vec![elsewhere]).await, []);
    let of_this_node = sorted(&[&queued, &started]);
    assert_eq!(fixture.overdue(vec![here]).await, of_this_node, "pull workers outlive our nodes");
    let mut many: Vec<NodeId> = (0..2_000).map(|_| NodeId::random()).collect();
    assert_eq!(fixture.overdue(many.clone()).await, []);
    many.insert(1_000, here);
    assert_eq!(fixture.overdue(many).await, of_this_node);

    fixture.advance(20);
    assert_eq!(fixture.overdue(vec![]).await, sorted(&[&expiring, &expiring_early]), "due or not, it expired");
    fixture.advance(VISIBILITY_MILLIS);
    assert_eq!(fixture.overdue(vec![]).await, sorted(&[&expiring, &expiring_early, &queued]));
    fixture.beat(&alive, alive.position.version, None, None).await.expect("it holds the task");
    fixture.advance(LEASE_MILLIS - VISIBILITY_MILLIS);
    let at_lease_end = [&expiring, &expiring_early, &queued, &leased, &asked, &long_running];
    assert_eq!(fixture.overdue(vec![]).await, sorted(&at_lease_end), "one worker sent a heartbeat in time");
    fixture.advance(TIMEOUT_MILLIS + GRACE_MILLIS);
    let all = fixture.store.overdue(vec![here], 100).await.expect("overdue answers");
    let expected = [&expiring, &expiring_early, &queued, &leased, &alive, &asked, &long_running, &started];
    assert_eq!(all.iter().map(|task| task.id).collect::<BTreeSet<_>>(), expected.map(|task| task.id).into());
    for task in &all {
        assert_same(task, &fixture.get(task).await);
    }
    assert_eq!(fixture.get(&good).await.state(), State::Pending);
}

/// A page has at most its limit. Once its tasks are taken back the next page comes, until none is
/// left.
pub async fn overdue_is_drained_page_by_page(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let leased = fixture.insert(task().queue("leased").times(30)).await;
    fixture.lease(leased[0].lane.id, 30).await;
    let queued = fixture.insert(task().queue("queued").times(30)).await;
    fixture.dispatch(queued[0].lane.id, 30).await;
    fixture.insert(task().queue("expired").expires_at(at(5)).times(30)).await;
    fixture.advance(LEASE_MILLIS + 1);
    let mut found = Vec::new();
    for _ in 0..100 {
        let page = fixture.store.overdue(vec![], 7).await.expect("overdue answers");
        assert!(page.len() <= 7, "{}, but the limit is 7", page.len());
        if page.is_empty() {
            break;
        }
        let changes = page.iter().map(|task| fixture.change(task, take_back(&fixture, task))).collect();
        let answers = fixture.store.apply(changes).await.expect("apply answers");
        assert!(answers.iter().all(super::is_done));
        found.extend(page.iter().map(|task| (task.state(), task.id)));
    }
    let count = |state| found.iter().filter(|(of, _)| *of == state).count();
    assert_eq!((count(State::Running), count(State::Queued), count(State::Pending)), (30, 30, 30));
    assert_eq!(found.iter().map(|(_, id)| *id).collect::<BTreeSet<_>>().len(), 90, "one was found twice");
    assert!(fixture.overdue(vec![]).await.is_empty());
}

/// A task that is overdue for two reasons is returned once; a node that is named twice counts once.
pub async fn overdue_names_each_task_once(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert(task().expires_at(at(10)).push("http://a.test:80").times(5)).await;
    let queued = fixture.dispatch(stored[0].lane.id, 4).await;
    fixture.start(queued[0].id, queued[0].position.version).await.expect("it is queued");
    fixture.advance(TIMEOUT_MILLIS + GRACE_MILLIS + 1);
    let dead = vec![fixture.node, fixture.node, NodeId::random()];
    assert_eq!(fixture.overdue(dead.clone()).await, super::ids(&stored));

    // The next process finds the holds of a dead one.
    let fixture = fixture.reopen().await;
    assert_eq!(fixture.overdue(dead).await, super::ids(&stored));
}

fn take_back(fixture: &StoreFixture<'_>, task: &Task) -> Event<'static> {
    match task.state() {
        State::Pending => Event::Expire,
        State::Queued => Event::GiveBack(fixture.now()),
        _ => Event::Fail(failure(task, FailureCause::Lost, true)),
    }
}

fn sorted(tasks: &[&Task]) -> Vec<TaskId> {
    let mut ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    ids.sort_unstable();
    ids
}
