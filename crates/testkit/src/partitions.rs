//! The conformance suite of the partitions of [`punctual_core::coordinator::Coordinator`]: each
//! sentence of its contract is a function here of the same name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use punctual_core::ids::NodeId;
use punctual_core::partitions::{Ownership, Partition};
use punctual_core::time::Timestamp;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::fixtures::START;
use crate::store::{StoreFactory, StoreFixture};

const COUNT: u16 = 64;
const TTL: u64 = 10_000;

/// Stamps the suite. `$factory` is an expression that returns a `StoreFactory` with a fresh place.
#[macro_export]
macro_rules! partitions_conformance {
    ($factory:expr) => {
        $crate::stamp! { partitions, $factory;
            a_lone_node_owns_everything,
            a_newcomer_gets_its_share,
            partitions_of_a_silent_node_are_taken,
            a_leaving_node_frees_what_it_owned,
            terms_grow_with_every_new_owner,
            nobody_owns_what_another_owns,
            a_share_says_when_to_look_again,

            a_call_renews_what_a_node_owns,
            another_count_is_rebalanced,
            a_restarted_process_gets_its_share,
        }
    };
}

/// Its first call gives it every partition, by number, until the ownership expires. Partitions that
/// were never owned are not returned.
pub async fn a_lone_node_owns_everything(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    assert_eq!(ownership(&fixture).await, []);
    let owned = turn(&fixture, fixture.node).await;
    let expected = |number| Ownership {
        partition: Partition::new(number),
        owner: Some(fixture.node),
        term: 1,
        expires_at: later(START),
    };
    assert_eq!(owned, (0..COUNT).map(expected).collect::<Vec<_>>());
    assert_eq!(ownership(&fixture).await, owned);
    // A call of another node does not renew its own.
    fixture.advance(TTL - 1);
    assert!(ownership(&fixture).await.iter().all(|row| row.owner_at(fixture.now()) == Some(fixture.node)));
    fixture.advance(1);
    assert!(ownership(&fixture).await.iter().all(|row| row.owner_at(fixture.now()).is_none()));
}

/// All its partitions are owned for longer, in the same term.
pub async fn a_call_renews_what_a_node_owns(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let first = turn(&fixture, fixture.node).await;
    for _ in 0..3 {
        fixture.advance(TTL - 1);
        let renewed = turn(&fixture, fixture.node).await;
        let expected: Vec<_> = first.iter().map(|row| Ownership { expires_at: later(fixture.now()), ..*row }).collect();
        assert_eq!(renewed, expected);
        assert_eq!(ownership(&fixture).await, expected);
    }
}

/// A node with more than its share gives the rest up at its next call. The newcomer takes that and
/// nothing else.
pub async fn a_newcomer_gets_its_share(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let [a, b, c] = nodes();
    let all = turn(&fixture, a).await;
    assert_eq!(turn(&fixture, b).await, [], "every partition has an owner");
    let kept = turn(&fixture, a).await;
    assert_eq!(kept.len(), usize::from(COUNT / 2));
    assert_eq!(terms(&kept), terms(&all[..kept.len()]), "a kept partition keeps its term");
    let given = turn(&fixture, b).await;
    assert_eq!(numbers(&given), numbers(&all[kept.len()..]), "it gets the partitions that were given up");
    for _ in 0..2 {
        assert_eq!((terms(&turn(&fixture, a).await), terms(&turn(&fixture, b).await)), (terms(&kept), terms(&given)));
    }

    assert_eq!(turn(&fixture, c).await, []);
    let (of_a, of_b) = (turn(&fixture, a).await, turn(&fixture, b).await);
    let of_c = turn(&fixture, c).await;
    assert_eq!([of_a.len(), of_b.len(), of_c.len()].iter().sum::<usize>(), usize::from(COUNT));
    assert!([&of_a, &of_b, &of_c].iter().all(|owned| (21..=22).contains(&owned.len())));
    for (before, after) in [(&kept, &of_a), (&given, &of_b)] {
        assert!(
            terms(after).iter().all(|row| terms(before).contains(row)),
            "no partition moves between nodes within their shares"
        );
    }
}

/// It owns them up to the last millisecond. Then the other nodes take them, and it is no longer a
/// member.
pub async fn partitions_of_a_silent_node_are_taken(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let [a, b, _] = nodes();
    turn(&fixture, a).await;
    fixture.advance(TTL - 1);
    assert_eq!(turn(&fixture, b).await, [], "it has a millisecond more");
    fixture.advance(1);
    let taken = turn(&fixture, b).await;
    assert_eq!(taken.len(), usize::from(COUNT), "a silent node has no share");
    assert!(taken.iter().all(|row| row.term == 2 && row.owner == Some(b)));
    assert_eq!(turn(&fixture, a).await, [], "it comes back as a newcomer");
    assert_eq!(turn(&fixture, b).await.len(), usize::from(COUNT / 2));
    assert_eq!(turn(&fixture, a).await.len(), usize::from(COUNT / 2));
}

/// They are free from then on, and the other nodes take them at their next call. It frees only its
/// own, and may leave twice.
pub async fn a_leaving_node_frees_what_it_owned(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let [a, b, stranger] = nodes();
    turn(&fixture, a).await;
    turn(&fixture, b).await;
    let (of_a, of_b) = (turn(&fixture, a).await, turn(&fixture, b).await);
    leave(&fixture, a).await;
    let found = ownership(&fixture).await;
    let freed: Vec<_> = found.iter().filter(|row| row.owner.is_none()).map(|row| (row.partition, row.term)).collect();
    assert_eq!(freed, terms(&of_a), "with the terms of the node that left");
    let rest: Vec<_> = found.iter().filter(|row| row.owner.is_some()).copied().collect();
    assert_eq!(rest, of_b);
    leave(&fixture, a).await;
    leave(&fixture, stranger).await;
    assert_eq!(ownership(&fixture).await, found);
    assert_eq!(turn(&fixture, b).await.len(), usize::from(COUNT));
    leave(&fixture, a).await;
    assert_eq!(
        turn(&fixture, b).await.len(),
        usize::from(COUNT),
        "the restarted node owns nothing of its former partitions"
    );
}

/// The term grows with every change of owner (given up, left, run out, restarted) and never
/// otherwise.
pub async fn terms_grow_with_every_new_owner(factory: &dyn StoreFactory) {
    let mut fixture = StoreFixture::open(factory).await;
    let mut last: BTreeMap<Partition, (u64, Option<NodeId>)> = BTreeMap::new();
    for round in 0..12_u64 {
        let nodes = nodes();
        for node in nodes.iter().chain(&nodes).chain(&nodes) {
            for row in turn(&fixture, *node).await {
                let (term, by) = last.insert(row.partition, (row.term, row.owner)).unwrap_or_default();
                let grows = if by == row.owner { row.term == term } else { row.term > term };
                assert!(grows, "{row:?} after {by:?} in term {term} in round {round}");
            }
        }
        let owners: BTreeSet<Option<NodeId>> = ownership(&fixture).await.iter().map(|row| row.owner).collect();
        assert_eq!(owners, nodes.into_iter().map(Some).collect());
        for (_, owner) in last.values_mut() {
            *owner = None;
        }
        match round % 3 {
            0 => fixture.advance(TTL),
            1 => {
                for node in nodes {
                    leave(&fixture, node).await;
                }
            }
            _ => {
                fixture = fixture.reopen().await;
                fixture.advance(TTL);
            }
        }
    }
    // Also for a node that comes back.
    let [a, ..] = nodes();
    fixture.advance(TTL);
    let before = turn(&fixture, a).await;
    leave(&fixture, a).await;
    let again = turn(&fixture, a).await;
    assert!(before.iter().zip(&again).all(|(before, again)| again.term > before.term));
}

/// Nodes join, stay silent, leave and come back, all at once: every term of every partition has one
/// owner.
pub async fn nobody_owns_what_another_owns(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let together = Arc::new(Barrier::new(6));
    let mut members = JoinSet::new();
    for number in 0..6_u64 {
        let (partitions, together) = (Arc::clone(&fixture.database), Arc::clone(&together));
        let clock = Arc::clone(&fixture.clock);
        members.spawn(async move {
            let node = NodeId::new(1 + number);
            let mut found = Vec::new();
            for round in 0..40 {
                together.wait().await;
                match (round + number) % 8 {
                    5 => partitions.leave(node).await.expect("leave answers"),
                    6 if number % 2 == 0 => clock.advance_millis(i64::try_from(TTL).expect("a short time") / 2),
                    _ => {
                        let owned = partitions.take_share(node, 16, TTL).await.expect("take_share answers").owned;
                        assert!(owned.iter().all(|row| row.owner == Some(node)));
                        found.extend(owned.iter().map(|row| (row.partition, row.term)));
                    }
                }
            }
            (node, found)
        });
    }
    let mut owner: BTreeMap<(Partition, u64), NodeId> = BTreeMap::new();
    for (node, found) in members.join_all().await {
        for of in found {
            let other = owner.insert(of, node).filter(|other| *other != node);
            assert_eq!(other, None, "{of:?} was given to {node:?} too");
        }
    }
    let owners: BTreeSet<NodeId> = owner.values().copied().collect();
    assert!(owners.len() > 1, "only one node ever owned a partition");
    let found = ownership(&fixture).await;
    assert_eq!(numbers(&found), (0..16).map(Partition::new).collect::<Vec<_>>());
}

/// It is the earliest end among the other nodes', whether a node owns partitions or waits for some,
/// and none for a node that is alone. At that instant a silent node has lost them.
pub async fn a_share_says_when_to_look_again(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let [a, b, c] = nodes();
    let look_again = async |node, ttl| {
        fixture.database.take_share(node, COUNT, ttl).await.expect("take_share answers").look_again_at
    };
    assert_eq!(look_again(a, TTL).await, None, "its own right is not another's");
    let silent = later(fixture.now());
    fixture.advance(TTL / 2);
    assert_eq!(look_again(b, TTL).await, Some(silent));
    let brief = fixture.now().plus_millis(1_000);
    assert_eq!(look_again(c, 1_000).await, Some(silent));
    assert_eq!(look_again(b, TTL).await, Some(brief), "of a node that owns nothing");
    fixture.advance(TTL / 2);
    let share = fixture.database.take_share(b, COUNT, TTL).await.expect("take_share answers");
    assert_eq!((share.owned.len(), share.look_again_at), (usize::from(COUNT), None), "both were silent");
}

/// More partitions are shared like the others. Those beyond a smaller count are given up, and
/// belong to no share.
pub async fn another_count_is_rebalanced(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    let [a, b, _] = nodes();
    let take = async |node, count| {
        let owned = fixture.database.take_share(node, count, TTL).await.expect("take_share answers").owned;
        numbers(&owned).iter().map(|partition| partition.number()).collect::<Vec<_>>()
    };
    assert_eq!(take(a, 4).await, [0, 1, 2, 3]);
    assert_eq!(take(a, 6).await, [0, 1, 2, 3, 4, 5]);
    let (of_a, of_b) = (take(b, 6).await.len(), take(a, 6).await);
    assert_eq!((of_a, of_b), (0, vec![0, 1, 2]));
    assert_eq!(take(b, 6).await, [3, 4, 5]);
    // One node knows the new count, the other does not yet.
    assert_eq!(take(a, 4).await, [0, 1], "two of four");
    assert_eq!(take(b, 4).await, [2, 3], "partitions beyond the count are in no share");
    let found = ownership(&fixture).await;
    assert_eq!(found.len(), 6, "they were owned once");
    assert!(found[4..].iter().all(|row| row.owner.is_none() && row.term == 2));
    assert_eq!(take(a, 6).await, [0, 1, 4]);
    assert_eq!(take(b, 6).await, [2, 3, 5]);
    assert_eq!(take(b, 0).await, Vec::<u16>::new(), "with no partitions there is nothing to own");
}

/// A process that opens the store gets its share, whether the previous process has left or not: at
/// once if the store belongs to one process at a time, otherwise when the previous ownership has
/// expired.
pub async fn a_restarted_process_gets_its_share(factory: &dyn StoreFactory) {
    let fixture = StoreFixture::open(factory).await;
    turn(&fixture, fixture.node).await;
    leave(&fixture, fixture.node).await;
    let fixture = fixture.reopen().await;
    assert_eq!(turn(&fixture, fixture.node).await.len(), usize::from(COUNT), "the previous process has left");
    let fixture = fixture.reopen().await;
    let at_once = turn(&fixture, fixture.node).await.len();
    assert!([0, usize::from(COUNT)].contains(&at_once), "{at_once}");
    fixture.advance(TTL);
    assert_eq!(turn(&fixture, fixture.node).await.len(), usize::from(COUNT));
}

fn nodes() -> [NodeId; 3] {
    [NodeId::new(3), NodeId::random(), NodeId::new(u64::MAX >> 1)]
}

async fn turn(fixture: &StoreFixture<'_>, node: NodeId) -> Vec<Ownership> {
    let owned = fixture.database.take_share(node, COUNT, TTL).await.expect("take_share answers").owned;
    assert!(owned.iter().all(|row| row.owner == Some(node) && row.expires_at == later(fixture.now())), "{owned:?}");
    assert!(owned.is_sorted_by_key(|row| row.partition));
    owned
}

async fn leave(fixture: &StoreFixture<'_>, node: NodeId) {
    fixture.database.leave(node).await.expect("leave answers");
}

async fn ownership(fixture: &StoreFixture<'_>) -> Vec<Ownership> {
    let found = fixture.database.ownership().await.expect("ownership answers");
    assert!(found.is_sorted_by_key(|row| row.partition) && found.iter().all(|row| row.term > 0), "{found:?}");
    found
}

fn later(now: Timestamp) -> Timestamp {
    now.plus_millis(i64::try_from(TTL).expect("a short time"))
}

fn numbers(rows: &[Ownership]) -> Vec<Partition> {
    rows.iter().map(|row| row.partition).collect()
}

fn terms(rows: &[Ownership]) -> Vec<(Partition, u64)> {
    rows.iter().map(|row| (row.partition, row.term)).collect()
}
