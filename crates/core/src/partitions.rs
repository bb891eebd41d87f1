//! Partitions: which scheduler node dispatches which queues.
//!
//! Every queue of a tenant belongs to one of a fixed number of partitions, by a hash that never
//! changes. Every partition has at most one owner, for a term. The owner dispatches the webhooks of
//! its queues. A node serves the pull workers that poll it, whatever it owns. Ownership only avoids
//! double work: the task's row decides, so two owners for a moment do no harm.
//!
//! The port is [`Coordinator`](crate::coordinator::Coordinator). [`rebalance`] decides which
//! partitions a node gives up and takes.

use std::collections::BTreeMap;

use crate::ids::NodeId;
use crate::lane::LaneKey;
use crate::time::Timestamp;

/// The number of a partition, from zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(u16);

impl Partition {
    /// The partition with this number.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// The partition of a lane among `count`: that of its queue. The hash (FNV-1a, mixed once more
    /// as `MurmurHash3` ends) must never change: nodes of all versions agree on it.
    pub fn of(lane: &LaneKey, count: u16) -> Self {
        let bytes = lane.tenant.bytes().chain([0]).chain(lane.queue.bytes());
        let hash = bytes
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        let number = (u128::from(mixed ^ (mixed >> 33)) * u128::from(count)) >> 64;
        debug_assert!(number < u128::from(count.max(1)), "a partition is below the count");
        Self(u16::try_from(number).unwrap_or(0))
    }
}

/// A partition and its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The partition.
    pub partition: Partition,
    /// Its owner, until `expires_at`.
    pub owner: Option<NodeId>,
    /// The owner's term, greater than that of any earlier owner.
    pub term: u64,
    /// When the ownership runs out unless it is renewed.
    pub expires_at: Timestamp,
}

impl Ownership {
    /// Its owner at `now`.
    pub fn owner_at(&self, now: Timestamp) -> Option<NodeId> {
        self.owner.filter(|_| self.expires_at > now)
    }
}

/// The share of a node, after it has taken it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionShare {
    /// The partitions that it owns, by number.
    pub owned: Vec<Ownership>,
    /// When it should take its share again, though no renewal is due: the right of another node
    /// ends then, unless that node renews it. None if there is no other node.
    pub look_again_at: Option<Timestamp>,
}

/// Brings `node` to its share at `now`: the rows of `owned` (every partition, by number) that
/// change. `members` are the nodes that take part, including this one.
///
/// A node's share is the count divided by the members; the first members, by their ids, take one of
/// the remainder each. Only partitions beyond a node's share move, and only their owner gives them
/// up.
pub fn rebalance(
    node: NodeId,
    owned: &[Ownership],
    members: &[NodeId],
    now: Timestamp,
    expires_at: Timestamp,
) -> Vec<Ownership> {
    let share = share_of(node, members, owned.len());
    let mut kept = 0;
    let mut changes = BTreeMap::new();
    for row in owned.iter().filter(|row| row.owner_at(now) == Some(node)) {
        let keeps = kept < share;
        kept += usize::from(keeps);
        let changed =
            if keeps { Ownership { expires_at, ..*row } } else { Ownership { owner: None, expires_at: now, ..*row } };
        changes.insert(row.partition, changed);
    }
    for row in owned.iter().filter(|row| row.owner_at(now).is_none()) {
        if kept == share {
            break;
        }
        kept += 1;
        changes.insert(row.partition, Ownership { owner: Some(node), term: row.term + 1, expires_at, ..*row });
    }
    // A node with more than its share would leave too few partitions for the others.
    debug_assert!(kept <= share, "a node keeps at most its share");
    changes.into_values().collect()
}

fn share_of(node: NodeId, members: &[NodeId], count: usize) -> usize {
    let mut members = members.to_vec();
    members.sort_unstable();
    members.dedup();
    let Ok(rank) = members.binary_search(&node) else { return 0 };
    count / members.len() + usize::from(rank < count % members.len())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::lane::Route;

    const TTL: i64 = 10;

    fn free(count: u16) -> Vec<Ownership> {
        let row = |number| Ownership {
            partition: Partition::new(number),
            owner: None,
            term: 0,
            expires_at: Timestamp::from_millis(0),
        };
        (0..count).map(row).collect()
    }

    fn apply(owned: &mut [Ownership], changes: Vec<Ownership>) -> usize {
        let mut moved = 0;
        for change in changes {
            let row = &mut owned[usize::from(change.partition.number())];
            moved += usize::from(row.owner != change.owner);
            *row = change;
        }
        moved
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn node(number: u64) -> NodeId {
        NodeId::new(number)
    }

    /// Brings every member to its share at `now`, in order. Returns how many rows changed.
    fn round(owned: &mut [Ownership], members: &[NodeId], now: i64) -> usize {
        members.iter().map(|member| apply(owned, rebalance(*member, owned, members, at(now), at(now + TTL)))).sum()
    }

    fn holdings(owned: &[Ownership], now: i64) -> HashMap<NodeId, usize> {
        let mut holdings = HashMap::new();
        for owner in owned.iter().filter_map(|row| row.owner_at(at(now))) {
            *holdings.entry(owner).or_default() += 1;
        }
        holdings
    }

    #[test]
    fn a_newcomer_takes_its_share_and_no_more_moves() {
        let mut owned = free(64);
        round(&mut owned, &[node(1), node(2)], 0);
        assert_eq!(holdings(&owned, 1), HashMap::from([(node(1), 32), (node(2), 32)]));
        let members = [node(1), node(2), node(3)];
        // A partition that moves counts twice: when it is given up and when it is taken.
        let moved = round(&mut owned, &members, 1) + round(&mut owned, &members, 2);
        assert_eq!(moved, 2 * 21);
        assert_eq!(holdings(&owned, 3), HashMap::from([(node(1), 22), (node(2), 21), (node(3), 21)]));
        assert_eq!(round(&mut owned, &members, 3), 0, "then nothing changes");
    }

    #[test]
    fn a_dead_node_loses_its_partitions_when_they_expire() {
        let mut owned = free(8);
        round(&mut owned, &[node(1), node(2)], 0);
        assert_eq!(round(&mut owned, &[node(1)], TTL - 1), 0);
        round(&mut owned, &[node(1)], TTL);
        assert_eq!(holdings(&owned, TTL), HashMap::from([(node(1), 8)]));
        assert!(owned.iter().all(|row| (1..=2).contains(&row.term)));
        assert!(
            rebalance(node(2), &owned, &[node(1)], at(TTL), at(2 * TTL)).is_empty(),
            "a node that is no member takes nothing"
        );
    }

    #[test]
    fn the_partition_of_a_queue_never_changes() {
        let lane = |tenant: &str, queue: &str| LaneKey {
            tenant: tenant.to_owned(),
            queue: queue.to_owned(),
            kind: "any".to_owned(),
            priority: 5,
            route: Route::Pull,
        };
        assert_eq!(Partition::of(&lane("default", "default"), 64).number(), 40);
        assert_eq!(Partition::of(&lane("acme", "mail"), 64).number(), 0);
        assert_eq!(Partition::of(&lane("acme", "mail"), 1).number(), 0);
        let spread: std::collections::HashSet<u16> =
            (0..640).map(|at| Partition::of(&lane("acme", &format!("queue{at}")), 64).number()).collect();
        assert!(spread.len() > 60, "{}", spread.len());
    }

    proptest! {
        #[test]
        fn any_set_of_members_settles_within_two_rounds(
            count in 1_u16..100,
            crowds in proptest::collection::vec(proptest::collection::btree_set(0_u64..8, 1..6), 1..6),
        ) {
            let mut owned = free(count);
            let mut now = 0;
            let mut terms: Vec<u64> = owned.iter().map(|row| row.term).collect();
            for crowd in crowds {
                let members: Vec<NodeId> = crowd.into_iter().map(node).collect();
                // Nodes that left without notice keep their partitions until then.
                now += TTL;
                for _ in 0..2 {
                    round(&mut owned, &members, now);
                    now += 1;
                }
                let holdings = holdings(&owned, now);
                let (most, least) = (usize::from(count).div_ceil(members.len()), usize::from(count) / members.len());
                prop_assert_eq!(holdings.values().sum::<usize>(), usize::from(count));
                let fair = |member| (least..=most).contains(&holdings.get(member).copied().unwrap_or(0));
                prop_assert!(members.iter().all(fair));
                prop_assert_eq!(round(&mut owned, &members, now), 0);
                let after: Vec<u64> = owned.iter().map(|row| row.term).collect();
                prop_assert!(terms.iter().zip(&after).all(|(before, after)| before <= after));
                terms = after;
            }
        }
    }
}
