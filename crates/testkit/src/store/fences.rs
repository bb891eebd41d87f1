//! Fences against replaced nodes: claims by the terms of partitions, changes by the term of a
//! lease.

use std::sync::Arc;

use punctual_core::coordinator::LeaderLease;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::LaneId;
use punctual_core::partitions::Partition;
use punctual_core::state::{Change, Event, State};
use punctual_core::store::{Applied, Claim, Claimant, Claimed, DispatchTo};
use punctual_core::task::Task;

use super::{StoreFactory, StoreFixture, VISIBILITY_MILLIS, assert_same, ids, is_done, worker};
use crate::fixtures::{at, task};

const COUNT: u16 = 4;
const TTL: u64 = 10_000;

/// With a term that never existed, was taken over or was given up, the claim takes nothing from any
/// lane, fails nothing, and returns no due instants. Other claims of the same call are not
/// affected.
pub async fn claim_is_fenced_by_the_terms_of_its_partitions(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert(task().push("http://a.test:80").times(8)).await;
    let expired = task().push("http://a.test:80").queue("expired").due(at(-9)).expires_at(at(-1));
    let expired = fixture.insert_one(expired).await;
    let lanes = [expired.lane.id, stored[0].lane.id];
    let good = turn(&fixture, fixture.node).await;
    let [zero, one] = [good[0], good[1]];

    let unknown = (Partition::new(999), 1);
    let (older, newer) = ((zero.0, zero.1 - 1), (one.0, one.1 + 1));
    for (named, lost) in [
        (vec![older], vec![zero.0]),
        (vec![zero, newer], vec![one.0]),
        (vec![newer, zero, older, unknown], vec![one.0, zero.0, unknown.0]),
        (vec![unknown], vec![unknown.0]),
    ] {
        assert_lost(&claim(&fixture, &lanes, 8, named).await, &lost);
    }
    for task in stored.iter().chain([&expired]) {
        assert_same(&fixture.get(task).await, task);
    }
    let empty = Claim { lanes: vec![], limit: 0, claimant: dispatch(vec![zero, newer]) };
    assert_lost(&fixture.claim(empty).await, &[one.0]);

    // Together with valid claims, and claims without terms.
    let [first, last] =
        [0, 1].map(|_| Claim { lanes: vec![(lanes[1], 1)], limit: 1, claimant: dispatch(good.clone()) });
    let bad = Claim { lanes: vec![(lanes[0], 3), (lanes[1], 3)], limit: 3, claimant: dispatch(vec![zero, newer]) };
    let pulled = Claim { lanes: vec![(lanes[1], 1)], limit: 1, claimant: worker("w") };
    let answers = fixture.store.claim(vec![first, bad, pulled, last]).await.expect("claim answers");
    assert_lost(&answers[1], &[one.0]);
    let taken: Vec<TaskId> = answers.iter().flat_map(|claimed| ids(&claimed.tasks)).collect();
    assert_eq!(taken, ids(&stored[..3]));
    assert!(answers.iter().all(|claimed| claimed.expired == 0));
    assert_eq!([0, 2, 3].map(|place| answers[place].next_due.len()), [1; 3]);

    // The ownership has run out, but no other node has taken over.
    fixture.advance(TTL);
    let claimed = claim(&fixture, &lanes, 1, good.clone()).await;
    assert_eq!((claimed.not_owned, claimed.expired, ids(&claimed.tasks)), (vec![], 1, vec![stored[3].id]));

    let other = NodeId::random();
    let theirs = turn(&fixture, other).await;
    assert_eq!(theirs.len(), usize::from(COUNT));
    let all: Vec<Partition> = good.iter().map(|(partition, _)| *partition).collect();
    assert_lost(&claim(&fixture, &lanes, 8, good.clone()).await, &all);
    assert_lost(&claim(&fixture, &lanes, 8, theirs.clone()).await, &all);
    assert_eq!(
        ids(&claim(&fixture, &lanes, 1, vec![]).await.tasks),
        [stored[4].id],
        "a claim without terms is not fenced"
    );

    fixture.database.leave(other).await.expect("leave answers");
    let again = turn(&fixture, fixture.node).await;
    assert_lost(&claim(&fixture, &lanes, 8, good).await, &all);
    assert_eq!(ids(&claim(&fixture, &lanes, 1, again.clone()).await.tasks), [stored[5].id]);
    fixture.database.leave(fixture.node).await.expect("leave answers");
    assert_lost(&claim(&fixture, &lanes, 8, again.clone()).await, &all);

    let mine = turn(&fixture, fixture.node).await;
    let fixture = fixture.reopen().await;
    assert_lost(&claim(&fixture, &lanes, 8, mine).await, &all);
    assert_eq!(fixture.get(&stored[6]).await.state(), State::Pending);
}

/// Until another node has held the lease, its holder applies changes, even after it has run out;
/// then none.
pub async fn apply_as_leader_is_fenced_by_the_term(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let stored = fixture.insert(task().times(6)).await;
    let acquire = async |name: &str, holder| {
        let coordinator = Arc::clone(&fixture.database);
        coordinator.acquire(name, holder, TTL).await.expect("acquire answers").expect("it is free")
    };
    let cancel = |task: &Task| fixture.change(task, Event::Cancel);
    let (a, b) = (NodeId::random(), NodeId::random());
    let none = LeaderLease { name: "leader".into(), holder: a, term: 1 };
    assert!(apply_as(&fixture, &none, vec![cancel(&stored[0])]).await.is_none(), "no node ever held it");

    let first = acquire("leader", a).await;
    let lost = (stored[1].id, cancel(&stored[1]).1.forged(|fields| fields.expected_version = 9));
    let twice = vec![cancel(&stored[0]), lost, cancel(&stored[2]), cancel(&stored[0])];
    let answers = apply_as(&fixture, &first, twice).await.expect("it holds the lease");
    assert_eq!(answers.iter().map(is_done).collect::<Vec<_>>(), [true, false, true, false]);
    assert_eq!(apply_as(&fixture, &first, vec![]).await.expect("it holds the lease").len(), 0);
    fixture.advance(TTL * 2);
    let answers = apply_as(&fixture, &first, vec![cancel(&stored[1])]).await.expect("no other node has taken it");
    assert!(is_done(&answers[0]));

    let second = acquire("leader", b).await;
    let forged = [
        LeaderLease { term: second.term + 1, ..second.clone() },
        LeaderLease { term: second.term - 1, ..second.clone() },
        LeaderLease { holder: a, ..second.clone() },
        LeaderLease { name: "other".into(), ..second.clone() },
        first,
    ];
    for lease in &forged {
        assert!(apply_as(&fixture, lease, vec![cancel(&stored[3])]).await.is_none(), "as {lease:?}");
        assert!(apply_as(&fixture, lease, vec![]).await.is_none(), "as {lease:?}");
    }
    assert_same(&fixture.get(&stored[3]).await, &stored[3]);
    let answers = apply_as(&fixture, &second, vec![cancel(&stored[3])]).await.expect("it holds the lease");
    assert!(is_done(&answers[0]));
    let counted = fixture.counts().await;
    assert_eq!(counted.values().sum::<u64>(), 2, "{counted:?}");

    // The same holder in another term is fenced too.
    fixture.database.release(&second).await.expect("it is released");
    let third = acquire("leader", b).await;
    assert!(apply_as(&fixture, &second, vec![cancel(&stored[4])]).await.is_none());
    let edit = punctual_core::task::Edit { priority: Some(1), ..Default::default() };
    let changes = vec![fixture.change(&stored[4], Event::Edit(Box::new(edit))), cancel(&stored[5])];
    let answers = apply_as(&fixture, &third, changes).await.expect("it holds the lease");
    assert!(matches!(&answers[0], Applied::Done(Some((lane, _))) if lane.key.priority == 1), "{answers:?}");
    assert!(is_done(&answers[1]));
}

async fn turn(fixture: &StoreFixture<'_>, node: NodeId) -> Vec<(Partition, u64)> {
    let owned = fixture.database.take_share(node, COUNT, TTL).await.expect("take_share answers").owned;
    owned.iter().map(|row| (row.partition, row.term)).collect()
}

fn dispatch(terms: Vec<(Partition, u64)>) -> Claimant {
    Claimant::Dispatch { to: DispatchTo::Broker { visibility_millis: VISIBILITY_MILLIS }, terms, from: None }
}

async fn claim(fixture: &StoreFixture<'_>, lanes: &[LaneId], limit: usize, terms: Vec<(Partition, u64)>) -> Claimed {
    let lanes = lanes.iter().map(|lane| (*lane, limit)).collect();
    fixture.claim(Claim { lanes, limit, claimant: dispatch(terms) }).await
}

#[track_caller]
fn assert_lost(claimed: &Claimed, lost: &[Partition]) {
    assert_eq!(claimed.not_owned, lost);
    assert!(claimed.tasks.is_empty() && claimed.next_due.is_empty() && claimed.expired == 0, "{claimed:?}");
}

async fn apply_as(
    fixture: &StoreFixture<'_>,
    lease: &LeaderLease,
    changes: Vec<(TaskId, Change)>,
) -> Option<Vec<Applied>> {
    let count = changes.len();
    let answers = fixture.store.apply_as(lease, changes).await.expect("apply_as answers");
    assert!(answers.as_ref().is_none_or(|answers| answers.len() == count), "one answer to each change");
    answers
}
