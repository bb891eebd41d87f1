//! The pull side of a turn: which waiting worker may take from which lanes.

use std::collections::HashSet;

use punctual_core::store::{Claim, StoreError, Taker};
use punctual_core::task::Task;

use crate::board::{Rank, Shelf};
use crate::desk::{DeskError, Handout, Waiting};
use crate::dispatcher::Dispatcher;
use crate::waiters::shelves;

/// Claims for pull workers, and for whom each is.
#[derive(Default)]
pub(super) struct Pulls {
    pub claims: Vec<Claim>,
    pub workers: Vec<u64>,
    /// The shelves that were looked at; they stay open until nobody meets there.
    pub shelves: Vec<Shelf>,
    /// At most how many tasks the claims take.
    pub tasks: usize,
}

/// Lanes one worker's claim looks at.
const LANES_PER_CLAIM: usize = 32;
/// Workers served from one shelf in a turn: enough to drain a backlog by single leases, few enough that one due
/// task does not make a claim for each of a thousand waiting workers.
const WORKERS_PER_SHELF: usize = 16;

impl Dispatcher {
    /// Chooses workers, first come first served, at every shelf where something is ready.
    pub(super) fn plan_pulls(&mut self) -> Pulls {
        let mut pulls = Pulls::default();
        let mut served = HashSet::new();
        let shelves: Vec<Shelf> = self.open.drain().collect();
        for shelf in shelves {
            if shelf == Shelf::Push {
                continue;
            }
            if self.board.ready(&shelf).next().is_none() {
                continue;
            }
            let workers = self.waiters.first_at(&shelf, WORKERS_PER_SHELF);
            if workers.is_empty() {
                continue;
            }
            pulls.shelves.push(shelf);
            for worker in workers {
                let Some(waiting) = self.waiters.get(worker) else { continue };
                let limit = waiting.ask.max_tasks;
                if pulls.tasks > 0 && pulls.tasks + limit > self.config.claim_batch {
                    break;
                }
                if served.insert(worker) {
                    pulls.claims.push(self.claim_for(waiting));
                    pulls.workers.push(worker);
                    pulls.tasks += limit;
                }
            }
        }
        pulls
    }

    /// A claim on the best ready lanes of all the shelves this worker looks at.
    fn claim_for(&self, waiting: &Waiting) -> Claim {
        let mut ranks: Vec<Rank> =
            shelves(waiting).iter().flat_map(|shelf| self.board.ready(shelf).take(LANES_PER_CLAIM)).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks.truncate(LANES_PER_CLAIM);
        let ask = &waiting.ask;
        Claim {
            lanes: ranks.iter().map(|rank| (rank.lane, ask.max_tasks)).collect(),
            limit: ask.max_tasks,
            taker: Taker::Worker { name: ask.worker.clone(), lease_millis: ask.lease_millis },
        }
    }

    /// Gives a worker what was claimed for it.
    pub(super) fn hand_out(&mut self, worker: u64, tasks: Vec<Task>) {
        if tasks.is_empty() {
            return;
        }
        let handout = Handout::new(tasks, self.returns.clone());
        if let Some(waiting) = self.waiters.remove(worker) {
            waiting.answer(Ok(handout));
        }
    }

    /// Answers the workers that did not want to wait and for whom there is nothing, or no store.
    pub(super) fn dismiss_the_impatient(&mut self, failure: Option<&StoreError>) {
        for worker in std::mem::take(&mut self.impatient) {
            let Some(waiting) = self.waiters.get(worker) else { continue };
            let something_ready = shelves(waiting).iter().any(|shelf| self.board.ready(shelf).next().is_some());
            if something_ready && failure.is_none() {
                self.impatient.push(worker);
            } else if let Some(waiting) = self.waiters.remove(worker) {
                waiting.answer(match failure {
                    Some(error) => Err(DeskError::Store(error.clone())),
                    None => Ok(Handout::new(Vec::new(), self.returns.clone())),
                });
            }
        }
    }
}
