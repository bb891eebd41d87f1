//! Large calls run in parts, and small calls pass between them.

use std::collections::HashSet;
use std::sync::{Arc, mpsc};

use punctual_core::ids::{NodeId, TaskId};
use punctual_core::state::{By, Change, Event, transition};
use punctual_core::store::{Applied, Claim, Claimant, Claimed, Inserted, Store};
use punctual_core::task::Task;
use punctual_core::trail::Actor;
use punctual_testkit::fixtures::{START, task};
use tokio::sync::oneshot;

use super::super::session::Session;
use super::Fixture;

async fn insert(fixture: &Fixture, queue: &str, count: usize) -> Vec<Task> {
    let inserted = fixture.store.insert(task().queue(queue).times(count)).await.unwrap();
    let created = |inserted| match inserted {
        Inserted::Created(task) => task,
        other => panic!("not created: {other:?}"),
    };
    inserted.into_iter().map(created).collect()
}

async fn claim(fixture: &Fixture, lanes: &[(&Task, usize)], limit: usize) -> Claimed {
    let claimant = Claimant::Worker { name: "w".into(), lease_millis: 1_000, due_by: None };
    let lanes = lanes.iter().map(|(task, most)| (task.lane.id, *most)).collect();
    fixture.store.claim(vec![Claim { lanes, limit, claimant }]).await.unwrap().remove(0)
}

fn completed(task: &Task) -> (TaskId, Change) {
    let by = By { now: START, node: NodeId::new(7), actor: Actor::Worker("w".into()) };
    let event = Event::Complete { result: None, http_status: None, dropped: None };
    (task.id, transition(&task.position, event, &by).unwrap())
}

#[tokio::test]
async fn a_claim_in_parts_takes_what_a_whole_one_would() {
    let fixture = Fixture::open();
    let (a, b) = (insert(&fixture, "a", 500).await, insert(&fixture, "b", 500).await);
    let lanes = [(&a[0], 100), (&b[0], 50), (&a[0], 700), (&b[0], 700)];
    let claimed = claim(&fixture, &lanes, 700).await;
    let of_a = claimed.tasks.iter().filter(|task| task.lane.id == a[0].lane.id).count();
    assert_eq!((claimed.tasks.len(), of_a), (700, 500));
    let ids: HashSet<TaskId> = claimed.tasks.iter().map(|task| task.id).collect();
    assert_eq!(ids.len(), 700);
    let next = |task: &Task| claimed.next_due.iter().find(|(lane, _)| *lane == task.lane.id).map(|(_, due)| *due);
    assert_eq!((next(&a[0]), next(&b[0])), (Some(None), Some(Some(b[0].due_at))));
    assert_eq!(claim(&fixture, &lanes, 1_000).await.tasks.len(), 300);
    assert!(claim(&fixture, &lanes, 1_000).await.tasks.is_empty());
    fixture.assert_counts().await;
}

#[tokio::test]
async fn claims_in_parts_are_made_one_after_the_other() {
    let fixture = Fixture::open();
    let tasks = insert(&fixture, "a", 1_000).await;
    let claim = |worker: &str, limit| Claim {
        lanes: vec![(tasks[0].lane.id, limit)],
        limit,
        claimant: Claimant::Worker { name: worker.to_owned(), lease_millis: 1_000, due_by: None },
    };
    let answers = fixture.store.claim(vec![claim("x", 300), claim("y", 10), claim("z", 900)]).await.unwrap();
    let taken: Vec<usize> = answers.iter().map(|answer| answer.tasks.len()).collect();
    assert_eq!(taken, [300, 10, 690]);
    let order: Vec<TaskId> = answers.iter().flat_map(|answer| &answer.tasks).map(|task| task.id).collect();
    assert_eq!(order, tasks.iter().map(|task| task.id).collect::<Vec<_>>());
    assert!(answers[0].tasks.iter().all(|task| task.worker.as_deref() == Some("x")));
}

#[tokio::test]
async fn changes_in_parts_are_answered_in_order() {
    let fixture = Fixture::open();
    let tasks = insert(&fixture, "a", 600).await;
    let claimed = claim(&fixture, &[(&tasks[0], 600)], 600).await.tasks;
    let mut changes: Vec<(TaskId, Change)> = claimed.iter().map(completed).collect();
    // The same change again, in a later part: the task is complete by then.
    changes.push(changes[3].clone());
    let applied = fixture.store.apply(changes).await.unwrap();
    let lost: Vec<usize> =
        applied.iter().enumerate().filter(|(_, applied)| matches!(applied, Applied::Lost)).map(|(at, _)| at).collect();
    assert_eq!((applied.len(), lost), (601, vec![600]));
    fixture.assert_counts().await;
}

/// Runs a large call, and a small one that is queued behind all its parts. Returns the answer of
/// the large call, and how many tasks there were when the small one ran.
async fn with_a_small_call_behind<T: Send + 'static>(
    fixture: &Arc<Fixture>,
    large: impl Future<Output = T> + Send + 'static,
) -> (T, i64) {
    // The writer waits in a job until the others are queued.
    let (go, wait) = mpsc::channel::<()>();
    let (begun, begins) = oneshot::channel();
    let first = {
        let fixture = Arc::clone(fixture);
        let block = move |_: &mut Session<'_>| Ok(begun.send(()).is_ok() && wait.recv().is_ok());
        tokio::spawn(async move { fixture.write(block).await })
    };
    begins.await.unwrap();
    let large = tokio::spawn(large);
    while fixture.store.writer().waiting() < 8 {
        tokio::task::yield_now().await;
    }
    let small = {
        let fixture = Arc::clone(fixture);
        tokio::spawn(async move { fixture.number("SELECT count(*) FROM tasks").await })
    };
    while fixture.store.writer().waiting() < 9 {
        tokio::task::yield_now().await;
    }
    go.send(()).unwrap();
    assert!(first.await.unwrap().unwrap());
    (large.await.unwrap(), small.await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_call_passes_a_large_one_that_came_first() {
    let fixture = Arc::new(Fixture::open());
    let tasks = insert(&fixture, "a", 1_000).await;
    let claimed = claim(&fixture, &[(&tasks[0], 1_000)], 1_000).await.tasks;
    let (store, changes) = (fixture.store.clone(), claimed.iter().map(completed).collect());
    let large = async move { store.apply(changes).await };
    let (applied, seen) = with_a_small_call_behind(&fixture, large).await;
    assert_eq!((applied.unwrap().len(), seen), (1_000, 1_000), "the small call ran before every part");
    assert_eq!(fixture.number("SELECT count(*) FROM tasks").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_call_passes_a_large_batch_that_came_first() {
    let fixture = Arc::new(Fixture::open());
    let (store, tasks) = (fixture.store.clone(), task().times(1_000));
    let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
    let (inserted, seen) = with_a_small_call_behind(&fixture, async move { store.insert(tasks).await }).await;
    assert_eq!(seen, 0, "the small call ran before every part");
    let created = |inserted: &Inserted| match inserted {
        Inserted::Created(task) => task.id,
        other => panic!("not created: {other:?}"),
    };
    assert_eq!(inserted.unwrap().iter().map(created).collect::<Vec<_>>(), ids);
    fixture.assert_counts().await;
}
