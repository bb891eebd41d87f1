//! Lanes that are removed in the transactions of other jobs, or in the order of the history.

use punctual_core::ids::{NodeId, TaskId};
use punctual_core::state::{By, Change, Event, transition};
use punctual_core::store::Inserted;
use punctual_core::task::Task;
use punctual_core::trail::Actor;
use punctual_core::upkeep::{Prunable, Upkeep};
use punctual_testkit::fixtures::{START, at, task};

use super::super::reclaim::change;
use super::super::{apply, insert};
use super::{Fixture, Session};
use crate::lane_reclaim::LanePlan;

/// More than any of the rounds here needs.
const LIMIT: usize = 100;

impl Fixture {
    /// A lane with a mark, which nothing names. It is not the last one.
    async fn marked_lane(&self) -> Task {
        let stored = self.insert(task()).await;
        self.insert(task().queue("last").due(at(1_000))).await;
        self.cancel(&stored).await;
        while self.store.prune(Prunable::History, at(1_000_000_000), LIMIT).await.unwrap().more {}
        self.round().await;
        stored
    }

    async fn cancel(&self, stored: &Task) {
        let cancelled = cancelled(stored);
        self.write(move |session| apply::apply(session, &[cancelled]).map(drop)).await.unwrap();
    }

    async fn round(&self) -> u64 {
        self.store.prune(Prunable::Lanes, START, LIMIT).await.unwrap().removed
    }
}

fn cancelled(stored: &Task) -> (TaskId, Change) {
    let by = By { now: START, node: NodeId::new(7), actor: Actor::Client };
    (stored.id, transition(&stored.position, Event::Cancel, &by).unwrap())
}

/// Its counts cancel out, but a finished task names the lane, wherever in the history it is.
#[tokio::test]
async fn a_task_that_comes_and_goes_at_once_renews_the_mark() {
    let fixture = Fixture::open();
    fixture.marked_lane().await;
    let mark = "SELECT empty_since FROM lanes WHERE queue = 'default'";
    let before = fixture.number(mark).await;
    let come_and_go = |session: &mut Session<'_>| {
        let Some(Inserted::Created(stored)) = insert::insert(session, vec![task().build()])?.pop() else {
            panic!("not created");
        };
        apply::apply(session, &[cancelled(&stored)])
    };
    fixture.write(come_and_go).await.unwrap();
    assert_eq!(fixture.round().await, 0);
    assert!(fixture.number(mark).await > before, "it was used since the last round");
}

/// The counts of the task are not written yet.
#[tokio::test]
async fn a_task_in_the_same_transaction_keeps_its_lane() {
    let fixture = Fixture::open();
    let lane = fixture.marked_lane().await.lane.id.number();
    let mark = fixture.number("SELECT empty_since FROM lanes WHERE queue = 'default'").await;
    let plan = move || LanePlan { unnamed: vec![(lane, mark)], ..LanePlan::default() };
    let removed = fixture
        .write(move |session| {
            insert::insert(session, vec![task().build()])?;
            change(session, &plan())
        })
        .await;
    assert_eq!(removed.unwrap(), 0);
    fixture.assert_counts().await;
}

/// Behind it in the same transaction, a task finds that its lane is gone.
#[tokio::test]
async fn a_task_behind_the_removal_makes_its_lane_again() {
    let fixture = Fixture::open();
    let before = fixture.marked_lane().await.lane.id;
    let mark = fixture.number("SELECT empty_since FROM lanes WHERE queue = 'default'").await;
    let after = fixture
        .write(move |session| {
            let plan = LanePlan { unnamed: vec![(before.number(), mark)], ..LanePlan::default() };
            assert_eq!(change(session, &plan)?, 1);
            insert::insert(session, vec![task().build()])
        })
        .await;
    let Some(Inserted::Created(stored)) = after.unwrap().pop() else { panic!("not created") };
    assert_ne!(stored.lane.id, before);
    assert_eq!(fixture.lease(&stored, 5).await.len(), 1);
    assert_eq!(fixture.number("SELECT sum(lanes) FROM lane_counts").await, 2);
    fixture.assert_counts().await;
}
