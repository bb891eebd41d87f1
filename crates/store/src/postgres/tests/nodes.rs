//! Several nodes on one database.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use punctual_core::clock::ManualClock;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::state::{By, Event, transition};
use punctual_core::store::{Applied, Inserted, Store};
use punctual_core::task::Task;
use punctual_core::trail::Actor;
use punctual_testkit::eventually::eventually;
use punctual_testkit::fixtures::{START, TENANT, task};

use super::super::{Options, PostgresClock, PostgresStore, Wake, Wakes};
use super::{Fixture, complete, ids, insert, lease, open};

/// Longer than the interval at which a busy lane is audited.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn nodes_never_share_a_task() {
    let fixture = Fixture::open().await;
    let first = fixture.insert(task()).await;
    let stored: BTreeSet<TaskId> = fixture
        .store
        .insert(task().times(1_000))
        .await
        .unwrap()
        .into_iter()
        .map(|answer| match answer {
            Inserted::Created(task) => task.id,
            other => panic!("{other:?}"),
        })
        .chain([first.id])
        .collect();
    let mut nodes = tokio::task::JoinSet::new();
    for number in 0..3 {
        let (url, first) = (fixture.url.clone(), first.clone());
        nodes.spawn(async move {
            let store = open(&url, NodeId::new(100 + number)).await;
            let mut taken = Vec::new();
            loop {
                let leased = lease(&store, &first, 13).await;
                if leased.is_empty() {
                    Store::close(&store).await.unwrap();
                    return taken;
                }
                for task in leased {
                    assert!(complete(&store, &task).await, "another node had it");
                    taken.push(task.id);
                }
            }
        });
    }
    let taken: Vec<TaskId> = nodes.join_all().await.concat();
    assert_eq!(taken.len(), stored.len(), "a task was claimed twice, or never");
    assert_eq!(taken.into_iter().collect::<BTreeSet<_>>(), stored);
    fixture.assert_counts().await;
}

/// One node keeps editing tasks that another keeps claiming and giving back: every change is
/// counted.
#[tokio::test]
async fn edits_and_claims_of_two_nodes_leave_the_counts_right() {
    let fixture = Fixture::open().await;
    let other = open(&fixture.url, NodeId::new(8)).await;
    let stored = fixture.store.insert(task().times(100)).await.unwrap();
    let Inserted::Created(first) = stored[0].clone() else { panic!("{stored:?}") };
    let ids: Vec<TaskId> = stored
        .iter()
        .map(|answer| match answer {
            Inserted::Created(task) => task.id,
            other => panic!("{other:?}"),
        })
        .collect();
    let by = By { now: START, node: NodeId::new(8), actor: Actor::Client };
    let editor = async {
        for _ in 0..60 {
            let read = other.get(TENANT, ids.clone()).await.unwrap().into_iter().flatten();
            let change = |task: Task| Some((task.id, transition(&task.position, Event::RunNow, &by).ok()?));
            other.apply(read.filter_map(change).collect()).await.unwrap();
        }
    };
    let claimer = async {
        let mut given = 0;
        for _ in 0..120 {
            let leased = fixture.lease(&first, 20).await;
            given += leased.len();
            let back = |task: &Task| {
                let event = Event::GiveBack(START);
                (task.id, transition(&task.position, event, &by).expect("it runs"))
            };
            let answers = fixture.store.apply(leased.iter().map(back).collect()).await.unwrap();
            assert!(answers.iter().all(|answer| matches!(answer, Applied::Done(Some(_)))), "no other node has them");
        }
        given
    };
    let ((), given) = tokio::join!(editor, claimer);
    assert!(given > 0);
    assert_eq!(fixture.number("SELECT count(*) FROM tasks WHERE state = 1").await, 100);
    fixture.assert_counts().await;
}

#[tokio::test]
async fn a_node_is_notified_of_inserts_by_another() {
    let fixture = Fixture::open().await;
    let other = open(&fixture.url, NodeId::new(8)).await;
    let (mut wakes, mut own) = (other.wakes(), fixture.store.wakes());
    // A node may not listen yet.
    eventually("the other node is notified", SOON, async || {
        let stored = fixture.insert(task().queue("mine")).await;
        notified_of(&mut wakes, &stored).await
    })
    .await;
    eventually("this node is notified", SOON, async || {
        let stored = insert(&other, task().queue("yours")).await;
        notified_of(&mut own, &stored).await
    })
    .await;
}

/// Waits for a notification of this task's lane, and fails on any other lane.
async fn notified_of(wakes: &mut Wakes, task: &Task) -> Result<(), String> {
    loop {
        match tokio::time::timeout(Duration::from_millis(500), wakes.next()).await {
            Ok(Some(Wake::Everything)) => {}
            Ok(Some(wake)) => {
                assert_eq!(wake, Wake::Lane(task.lane.clone(), START), "it was notified of its own insert");
                return Ok(());
            }
            Ok(None) => panic!("the store is closed"),
            Err(_) => return Err("no notification".to_owned()),
        }
    }
}

/// A task that another node puts before the scan cursor is found without a notification.
#[tokio::test]
async fn polling_alone_suffices() {
    let fixture = Fixture::open().await;
    let stored = fixture.store.insert(task().times(3)).await.unwrap();
    let Inserted::Created(first) = &stored[0] else { panic!("{stored:?}") };
    assert_eq!(fixture.lease(first, 3).await.len(), 3);
    // No node is notified of this.
    let copy = format!(
        "INSERT INTO tasks SELECT (jsonb_populate_record(t, jsonb_build_object(
             'id', '{}', 'seq', -1, 'state', 1, 'due_at', t.due_at - 1000, 'lease_expires_at', NULL, 'node', NULL
         ))).* FROM tasks AS t WHERE id = '{}'",
        TaskId::new().uuid(),
        first.id.uuid()
    );
    fixture.sql(&copy).await;
    let found = eventually("it is found", SOON, async || {
        fixture.lease(first, 1).await.pop().ok_or_else(|| "nothing is due".to_owned())
    });
    found.await;
}

#[tokio::test]
async fn the_clock_is_that_of_the_database() {
    use punctual_core::clock::Clock;

    let fixture = Fixture::open().await;
    let clock = PostgresClock::connect(&fixture.url).await.unwrap();
    let asked = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    for _ in 0..5 {
        let estimated = clock.now().as_millis();
        let after = fixture.number(asked).await;
        assert!(estimated <= after, "ahead of the database by {} ms", estimated - after);
        assert!(after - estimated < 2_000, "behind the database by {} ms", after - estimated);
    }
    assert!(clock.skew_millis().abs() < 2_000, "both are on one machine");
}

/// A store whose full scans are slow makes one and then scans from the low watermark. It still
/// finds tasks that expire later.
#[tokio::test]
async fn tasks_that_expire_between_full_scans_are_found() {
    let fixture = Fixture::open().await;
    let clock = Arc::new(ManualClock::new(START));
    let options = Options { quick_look: Duration::ZERO, ..Options::default() };
    let store = PostgresStore::connect(&fixture.url, Arc::clone(&clock) as _, NodeId::new(8), options).await.unwrap();
    let overdue = async || ids(&store.overdue(vec![], 10).await.unwrap());
    assert_eq!(overdue().await, []);
    let first = insert(&store, task()).await;
    let second = insert(&store, task().expires_at(START.plus_millis(90_000))).await;
    let held = lease(&store, &first, 1).await.pop().unwrap();
    clock.advance_millis(60_000);
    assert_eq!(overdue().await, [held.id]);
    assert_eq!(overdue().await, [held.id], "it is still there");
    assert!(complete(&store, &held).await);
    assert_eq!(overdue().await, []);
    clock.advance_millis(60_000);
    assert_eq!(overdue().await, [second.id]);
    let late = insert(&store, task().expires_at(START.plus_millis(1))).await;
    let mut both = [second.id, late.id];
    both.sort_unstable();
    let mut found = overdue().await;
    found.sort_unstable();
    assert_eq!(found, both, "the store knows its own writes");
}
