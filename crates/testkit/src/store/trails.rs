//! The bound of a trail.

use punctual_core::ids::TaskId;
use punctual_core::state::{Change, Event, transition};
use punctual_core::task::{Edit, Hold, Task};
use punctual_core::trail::Step;

use super::{StoreFactory, StoreFixture, WORKER, is_done};
use crate::fixtures::{at, task};

/// More steps than a trail keeps.
const STEPS: usize = 250;

/// Takes many steps with the task, which shorten nothing.
async fn with_many_steps(fixture: &StoreFixture<'_>, task: &Task) -> Task {
    let mut position = task.position;
    let mut run_now = || {
        let change = transition(&position, Event::RunNow, &fixture.by()).expect("it waits");
        position = change.position_after(&position);
        (task.id, change)
    };
    let changes: Vec<(TaskId, Change)> = (0..STEPS).map(|_| run_now()).collect();
    assert!(fixture.store.apply(changes).await.expect("apply answers").iter().all(is_done));
    let grown = fixture.get(task).await;
    assert_eq!(grown.trail.entries().count(), STEPS + 1);
    grown
}

/// Its first and last steps are there, and all others are counted.
fn assert_short(task: &Task) {
    let steps = task.trail.entries().count();
    assert!(task.trail.is_whole() && steps < STEPS / 2 + 5, "{steps} steps");
    let counted: u64 = task.trail.entries().map(|entry| entry.omitted().unwrap_or(1)).sum();
    assert_eq!(counted, task.position.version, "each step is there or counted");
    assert_eq!(task.trail.entries().next().expect("a first step").step, Step::Submitted);
    assert_eq!(task.trail.last().expect("a last step").version, task.position.version);
}

/// By a dispatcher and by a worker.
pub async fn claim_shortens_a_long_trail(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let lane = fixture.insert_one(task().due(at(-1))).await.lane.id;
    let stored = fixture.insert_one(task().due(at(-2))).await;
    with_many_steps(&fixture, &stored).await;
    fixture.advance(10);
    let leased = fixture.lease(lane, 2).await;
    let long = leased.iter().find(|task| task.id == stored.id).expect("it is due");
    assert_short(long);
    assert_eq!(fixture.get(long).await.trail, long.trail, "it is stored as it was returned");
    assert_eq!(long.trail.runs(long.id).last().map(|run| run.worker.clone()), Some(WORKER.into()));
    let beside = leased.iter().find(|task| task.id != stored.id).expect("it is due, too");
    assert_eq!(beside.trail.entries().count(), 3, "a short trail keeps all its steps");
    assert_eq!(fixture.get(beside).await.trail, beside.trail);
}

/// A change without an edit, and an edit.
pub async fn apply_keeps_what_a_change_keeps_of_the_trail(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let edit = Edit { priority: Some(7), ..Edit::default() };
    let hold = Hold {
        worker: WORKER.into(),
        node: None,
        since: fixture.now(),
        expires_at: at(1_000),
        deadline_at: at(1_000),
        lease_millis: 1_000,
    };
    for edits in [false, true] {
        let task = with_many_steps(&fixture, &fixture.insert_one(task()).await).await;
        let event = if edits { Event::Edit(Box::new(edit.clone())) } else { Event::Claim(hold.clone()) };
        let (id, change) = fixture.change(&task, event);
        assert!(is_done(&fixture.apply_change((id, change.shortening(&task.trail))).await));
        assert_short(&fixture.get(&task).await);
    }
}
