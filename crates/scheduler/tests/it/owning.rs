//! The owner of a partition dispatches it, in its term and in no other.

use std::collections::HashSet;

use punctual_core::coordinator::Coordinator;
use punctual_core::ids::NodeId;
use punctual_core::state::State;
use punctual_core::store::Claimant;
use punctual_testkit::fixtures::task;

use crate::harness::{Harness, LEASE, PARTITIONS};

const OTHER: NodeId = NodeId::new(2);

impl Harness {
    /// The terms named by every dispatch so far.
    fn named(&self) -> Vec<Vec<(u16, u64)>> {
        let claims = self.spy.claims.lock().unwrap();
        let terms = claims.iter().filter_map(|claim| match &claim.claimant {
            Claimant::Dispatch { terms, .. } => Some(terms),
            Claimant::Worker { .. } => None,
        });
        terms.map(|terms| terms.iter().map(|(partition, term)| (partition.number(), *term)).collect()).collect()
    }

    /// Submits some tasks to each of many queues, so to every partition.
    async fn submit_everywhere(&self, of_each: usize) -> usize {
        let queues = 40;
        let each = (0..queues * of_each).map(|n| task().queue(&format!("q{}", n % queues)).push("http://a.example:80"));
        self.submit_all(each).await.len()
    }
}

#[tokio::test]
async fn a_node_dispatches_only_the_partitions_it_owns() {
    let mut harness = Harness::of_many(|_| {});
    harness.submit_everywhere(1).await;
    harness.submit(task().queue("pulled")).await;
    harness.passes().await;
    assert_eq!((harness.depth().await, harness.named().len()), (0, 0));
    assert_eq!(harness.lease("pulled", 1).await.len(), 1, "a worker is served by the node that it polls");
    harness.owner.run_once().await.unwrap();
    harness.passes().await;
    assert_eq!(harness.depth().await, 40);
}

#[tokio::test]
async fn every_claim_names_each_partition_once_with_its_term() {
    let mut harness = Harness::of_many(|_| {});
    harness.owner.run_once().await.unwrap();
    harness.submit_everywhere(2).await;
    harness.passes().await;
    let named = harness.named();
    assert!(!named.is_empty());
    for terms in &named {
        let distinct: HashSet<u16> = terms.iter().map(|(partition, _)| *partition).collect();
        assert_eq!(distinct.len(), terms.len(), "{terms:?}");
        assert!(terms.iter().all(|(partition, term)| *partition < PARTITIONS && *term == 1), "{terms:?}");
    }
    let all: HashSet<u16> = named.iter().flatten().map(|(partition, _)| *partition).collect();
    assert_eq!(all.len(), usize::from(PARTITIONS));
}

#[tokio::test]
async fn a_partition_lost_to_another_node_is_forgotten() {
    let mut harness = Harness::of_many(|_| {});
    harness.owner.run_once().await.unwrap();
    let millis = i64::try_from(LEASE.as_millis()).unwrap();
    harness.clock.advance_millis(millis);
    // This node still owns everything by its own clock, and nothing by the store's.
    let taken = harness.sqlite.take_share(OTHER, PARTITIONS, 60_000).await.unwrap().owned;
    assert_eq!(taken.len(), usize::from(PARTITIONS));
    let id = harness.submit(task().push("http://a.example:80")).await;
    harness.passes().await;
    let named = harness.named();
    assert_eq!((harness.depth().await, named.len()), (0, 1), "one claim, refused: {named:?}");
    assert_eq!((harness.task(id).await.state(), harness.task(id).await.position.attempts), (State::Pending, 0));
    harness.passes().await;
    assert_eq!(harness.named().len(), 1, "and no other");
    // It gets the partition back in another term.
    harness.sqlite.leave(OTHER).await.unwrap();
    harness.owner.run_once().await.unwrap();
    harness.passes().await;
    assert_eq!(harness.depth().await, 1);
    assert_eq!(harness.named().last().unwrap()[0].1, 3);
}
