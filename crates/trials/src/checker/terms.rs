//! Law 17: a partition and the leadership each have one holder at a time, in terms that grow, and
//! no node writes under a former term.
//!
//! A node takes a term in a write of its own. The database counts both those writes and the writes
//! to tasks. So the check is exact: at the moment of a claim, the greatest term of the partition
//! belongs to the node that claims.

use std::collections::{BTreeMap, HashMap};

use punctual_core::ids::TaskId;

use super::Findings;
use super::law::Law;
use crate::history::{Dumped, History, Term, TrailStep, Witness, WitnessedWrite};

/// The name of the leadership among the resources.
const LEADER: &str = "leader";

/// Compares the servers' writes with the terms they held. Checks nothing without a witness.
pub fn check(history: &History, findings: &mut Findings) {
    let Some(witness) = &history.witness else { return };
    findings.about = None;
    let reigns = Reigns::of(witness, findings);
    let mut writes: HashMap<(TaskId, u64), &WitnessedWrite> = HashMap::new();
    for write in &witness.writes {
        // A row may be written again at its version, by a heartbeat or when it gets its turn.
        let first = writes.entry((write.task, write.version)).or_insert(write);
        if write.moment < first.moment {
            *first = write;
        }
    }
    for dumped in &history.dump {
        findings.about = Some(dumped.task);
        for step in &dumped.trail {
            let Some(needed) = needed(dumped, step) else { continue };
            // A claim that starts the run is one write, at the version of the start.
            let write =
                [step.version, step.version + 1].iter().find_map(|version| writes.get(&(dumped.task, *version)));
            findings
                .demand(write.is_some(), Law::OneOwner, || format!("the witness did not see the write of {step:?}"));
            let Some(write) = write else { continue };
            let resource = match needed {
                Needed::Leadership => LEADER,
                Needed::PartitionOfTask => &write.partition,
            };
            let reign = reigns.at(resource, write.moment);
            findings.demand(reign.is_some_and(|reign| reign.holder == step.node), Law::OneOwner, || {
                format!("{step:?} at moment {}, and of {resource} there was {reign:?}", write.moment)
            });
        }
    }
}

/// The resource and the node that must hold it.
#[derive(Clone, Copy)]
enum Needed {
    Leadership,
    PartitionOfTask,
}

/// The resource that the node must hold to take this step, if any.
fn needed(dumped: &Dumped, step: &TrailStep) -> Option<Needed> {
    if step.actor == "reaper" || step.actor == "schedule" {
        Some(Needed::Leadership)
    } else if dumped.pushed && step.is("claimed") {
        Some(Needed::PartitionOfTask)
    } else {
        None
    }
}

/// The holders of each resource, in the order of their terms.
struct Reigns<'a>(BTreeMap<&'a str, Vec<Reign<'a>>>);

/// A term, from the moment at which it was taken.
#[derive(Clone, Copy, Debug)]
struct Reign<'a> {
    from: u64,
    term: u64,
    holder: &'a str,
}

impl<'a> Reigns<'a> {
    /// The terms that the witness saw. Reports terms that do not grow.
    fn of(witness: &'a Witness, findings: &mut Findings) -> Self {
        let mut terms: Vec<&Term> = witness.terms.iter().collect();
        terms.sort_unstable_by_key(|term| term.moment);
        let mut reigns: BTreeMap<&str, Vec<Reign<'_>>> = BTreeMap::new();
        for owned in terms {
            let of_it = reigns.entry(&owned.resource).or_default();
            let last = of_it.last().copied();
            findings.demand(last.is_none_or(|last| owned.term >= last.term), Law::OneOwner, || {
                format!("a term went back: {owned:?} after {last:?}")
            });
            let Some(holder) = owned.holder.as_deref() else { continue };
            let same = last.filter(|last| last.term == owned.term);
            findings.demand(same.is_none_or(|same| same.holder == holder), Law::OneOwner, || {
                format!("two holders in one term: {owned:?} after {last:?}")
            });
            if same.is_none() {
                of_it.push(Reign { from: owned.moment, term: owned.term, holder });
            }
        }
        Self(reigns)
    }

    /// The last term that had been taken at a moment.
    fn at(&self, resource: &str, moment: u64) -> Option<Reign<'a>> {
        let of_it = self.0.get(resource)?;
        of_it[..of_it.partition_point(|reign| reign.from < moment)].last().copied()
    }
}
