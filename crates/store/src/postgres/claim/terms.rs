//! The terms that claims name: whether this node still owns the partitions it takes from.
//!
//! A claim looks them up in its own transaction and locks them. A node that takes a partition over
//! (`partitions`) waits for that lock, or the claim sees the new owner and takes nothing.

use std::collections::{BTreeSet, HashSet};

use punctual_core::ids::NodeId;
use punctual_core::partitions::Partition;
use punctual_core::store::{Claim, Claimant};

use crate::columns::{node_column, number_column};
use crate::postgres::connection::Session;
use crate::postgres::fault::Fault;
use crate::postgres::statements::Sql;

/// Partitions and terms, each once and in order, so that claims do not deadlock.
pub(crate) struct Terms {
    numbers: Vec<i32>,
    terms: Vec<i64>,
}

/// The partitions that are owned, each in its term.
pub(crate) type OwnedTerms = HashSet<(i32, i64)>;

impl Terms {
    /// The terms that the claims name.
    pub(crate) fn of(claims: &[Claim]) -> Self {
        let named: BTreeSet<(i32, i64)> = claims.iter().flat_map(named).map(columns).collect();
        let (numbers, terms) = named.into_iter().unzip();
        Self { numbers, terms }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Locks the terms that the node owns. Sends no statement if there are none.
    pub(crate) async fn hold(&self, session: &Session, node: NodeId) -> Result<OwnedTerms, Fault> {
        if self.is_empty() {
            return Ok(OwnedTerms::new());
        }
        let rows = session.query(Sql::PartitionHold, &[&self.numbers, &self.terms, &node_column(node)]).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }
}

/// The partitions that a claim names and that are not among the held ones.
pub(crate) fn lost(claim: &Claim, held: &OwnedTerms) -> Vec<Partition> {
    let lost = named(claim).iter().filter(|term| !held.contains(&columns(term)));
    lost.map(|(partition, _)| *partition).collect()
}

fn named(claim: &Claim) -> &[(Partition, u64)] {
    match &claim.claimant {
        Claimant::Dispatch { terms, .. } => terms,
        Claimant::Worker { .. } => &[],
    }
}

fn columns((partition, term): &(Partition, u64)) -> (i32, i64) {
    (i32::from(partition.number()), number_column(*term))
}
