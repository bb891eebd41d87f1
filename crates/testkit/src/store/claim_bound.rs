//! `claim` with a bound: tasks that are due from an instant on.

use std::collections::BTreeMap;

use punctual_core::lane::LaneId;
use punctual_core::state::State;
use punctual_core::store::{Claim, Claimed};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;

use super::claim::next_due;
use super::{StoreFactory, StoreFixture, assert_same, dispatcher_from, ids, worker};
use crate::fixtures::{START, at, task};

/// Tasks that were due before the bound stay unchanged, even expired ones. A claim without a bound
/// takes them.
pub async fn claim_takes_nothing_due_before_its_bound(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let insert = async |due: i64| fixture.insert_one(task().due(at(due))).await;
    let expired = fixture.insert_one(task().due(at(-900)).expires_at(at(-800))).await;
    let before = [insert(-1_000).await, insert(-501).await];
    let since = [insert(-500).await, insert(-499).await, insert(0).await];
    let later = insert(700).await;
    let old = fixture.insert_one(task().queue("old").due(at(-600))).await;
    let (lane, other) = (later.lane.id, old.lane.id);

    let bound = Some(at(-500));
    let first = claim(&fixture, &[lane, other], 2, bound).await;
    assert_eq!(ids(&first.tasks), ids(&since[..2]));
    assert_eq!(next_due(&first), BTreeMap::from([(lane, Some(START))]), "the limit was reached in the first lane");
    let second = claim(&fixture, &[other, lane], 9, bound).await;
    assert_eq!((ids(&second.tasks), second.expired), (ids(&since[2..]), 0));
    assert_eq!(next_due(&second), BTreeMap::from([(lane, Some(at(700))), (other, None)]), "next due from the bound on");
    for left in before.iter().chain([&expired, &later, &old]) {
        assert_same(&fixture.get(left).await, left);
    }
    // A bound before everything, in between, and ahead.
    assert_eq!(ids(&claim(&fixture, &[lane], 9, Some(at(-501))).await.tasks), [before[1].id]);
    assert!(claim(&fixture, &[lane, other], 9, Some(at(1))).await.tasks.is_empty());

    let rest = claim(&fixture, &[lane, other], 9, None).await;
    assert_eq!((ids(&rest.tasks), rest.expired), (vec![before[0].id, old.id], 1));
    assert_eq!(next_due(&rest), BTreeMap::from([(lane, Some(at(700))), (other, None)]));
    fixture.advance(700);
    assert_eq!(ids(&claim(&fixture, &[lane], 9, bound).await.tasks), [later.id], "a bound is a lower bound only");

    // With and without a bound in one call: each task goes to one of them.
    let mut stored = fixture.insert(task().queue("both").due(at(100)).times(3)).await;
    stored.extend(fixture.insert(task().queue("both").due(at(600)).times(4)).await);
    let lane = stored[0].lane.id;
    let part = |limit, claimant| Claim { lanes: vec![(lane, limit)], limit, claimant };
    let claims = vec![
        part(1, dispatcher_from(None)),
        part(2, dispatcher_from(Some(at(500)))),
        part(4, worker("w")),
        part(9, dispatcher_from(Some(at(500)))),
    ];
    let answers = fixture.store.claim(claims).await.expect("claim answers");
    let given: Vec<_> = answers.iter().map(|claimed| ids(&claimed.tasks)).collect();
    let picked = |places: &[usize]| places.iter().map(|place| stored[*place].id).collect::<Vec<_>>();
    assert_eq!(given, [picked(&[0]), picked(&[3, 4]), picked(&[1, 2, 5, 6]), vec![]]);
    assert_eq!(next_due(&answers[3]), BTreeMap::from([(lane, None)]));
    let states: Vec<State> = read(&fixture, &stored).await.iter().map(Task::state).collect();
    let running = |place: &usize| if [1, 2, 5, 6].contains(place) { State::Running } else { State::Queued };
    assert_eq!(states, (0..7).map(|place| running(&place)).collect::<Vec<_>>());
}

async fn claim(fixture: &StoreFixture<'_>, lanes: &[LaneId], limit: usize, from: Option<Timestamp>) -> Claimed {
    let lanes = lanes.iter().map(|lane| (*lane, limit)).collect();
    fixture.claim(Claim { lanes, limit, claimant: dispatcher_from(from) }).await
}

async fn read(fixture: &StoreFixture<'_>, stored: &[Task]) -> Vec<Task> {
    let mut read = Vec::with_capacity(stored.len());
    for task in stored {
        read.push(fixture.get(task).await);
    }
    read
}
