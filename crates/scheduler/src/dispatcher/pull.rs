//! The pull side of a turn: which waiting worker may take from which lanes.
//!
//! Tenants share what a turn claims by deficit round robin; a tenant's workers are served in the
//! order in which they came; a worker's ask is split between the bands of the lanes it looks at.

use std::collections::{BTreeSet, HashMap};

use punctual_core::store::{Claim, Claimant, Claimed, StoreError};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tokio::time::Instant;

use super::flights::{Flight, Split};
use super::split::Candidate;
use crate::board::{Shelf, by_priority};
use crate::desk::{DeskError, Handout};
use crate::dispatcher::{Dispatcher, Report};
use crate::fairness::{Band, Contender};
use crate::waiters::shelves;

/// Lanes of one band that a worker's claim looks at.
const LANES_PER_CLAIM: usize = 32;
/// Workers served from one shelf in a turn: enough to drain a backlog by single leases, few enough that one due
/// task does not make a claim for each of a thousand waiting workers.
const WORKERS_PER_SHELF: usize = 16;
/// Tenants that want fewer tasks than this are claimed for in one call, so that many of them are not many calls.
const TASKS_TOGETHER: usize = 64;

/// Claims for the workers of a tenant.
struct Served {
    tenant: String,
    claims: Vec<Claim>,
    splits: Vec<Split>,
    workers: Vec<u64>,
    tasks: usize,
}

impl Dispatcher {
    /// Claims for workers at every shelf where something is ready, except for tenants for whom a claim is under way.
    pub(super) fn launch_pulls(&mut self) {
        if self.flights.is_full() {
            return;
        }
        let mut waiting = self.who_can_be_served();
        // Who has waited longest is first, where not everybody can be.
        waiting.sort_unstable_by_key(|(_, workers)| workers.first().copied());
        let asked = |worker: &u64| self.waiters.get(*worker).map_or(0, |waiting| waiting.ask.max_tasks);
        let contenders: Vec<Contender<'_>> = waiting
            .iter()
            .map(|(tenant, workers)| Contender { tenant, demand: workers.iter().map(asked).sum() })
            .collect();
        let under_way = self.flights.pulling();
        let grants = self.pulling_tenants.split(self.config.claim_batch, &contenders, &under_way);
        let mut together: Vec<Served> = Vec::new();
        for ((tenant, workers), grant) in waiting.into_iter().zip(grants) {
            let served = self.serve(tenant, &workers, grant);
            if served.tasks >= TASKS_TOGETHER {
                self.launch_pull(vec![served]);
            } else if !served.claims.is_empty() {
                if together.iter().map(|served| served.tasks).sum::<usize>() + served.tasks > TASKS_TOGETHER {
                    self.launch_pull(std::mem::take(&mut together));
                }
                together.push(served);
            }
        }
        if !together.is_empty() {
            self.launch_pull(together);
        }
    }

    /// The tenants that have both ready lanes and waiting workers, and those workers in the order in which they came.
    /// The shelves stay open until nobody meets there.
    fn who_can_be_served(&mut self) -> Vec<(String, BTreeSet<u64>)> {
        let mut by_tenant: HashMap<String, BTreeSet<u64>> = HashMap::new();
        let mut open = std::mem::take(&mut self.open);
        open.retain(|shelf| {
            if self.flights.is_pulling(shelf.tenant()) {
                return true;
            }
            if self.board.ready(shelf).is_none() {
                return false;
            }
            let workers = self.waiters.first_at(shelf, WORKERS_PER_SHELF);
            let meet = !workers.is_empty();
            if meet {
                by_tenant.entry(shelf.tenant().to_owned()).or_default().extend(workers);
            }
            meet
        });
        self.open = open;
        by_tenant.into_iter().collect()
    }

    /// Claims for the first workers of a tenant, as many tasks as it may take.
    fn serve(&mut self, tenant: String, workers: &BTreeSet<u64>, grant: usize) -> Served {
        let (claims, splits, served) = (Vec::new(), Vec::new(), Vec::new());
        let mut served = Served { tenant, claims, splits, workers: served, tasks: 0 };
        for worker in workers {
            let Some(waiting) = self.waiters.get(*worker) else { continue };
            let (asked, left) = (waiting.ask.max_tasks, grant - served.tasks);
            // A part of what a worker asks for is better than nothing, but only once in a turn.
            if left == 0 || (asked > left && served.tasks > 0) {
                break;
            }
            let limit = asked.min(left);
            let (name, lease_millis) = (waiting.ask.worker.clone(), waiting.ask.lease_millis);
            let (candidates, due_by) = self.candidates(&shelves(waiting));
            let claimant = Claimant::Worker { name, lease_millis, due_by };
            let (lanes, split) = self.pull_bands.split(&served.tenant, &candidates, limit, [usize::MAX; 3]);
            served.claims.push(Claim { lanes, limit, claimant });
            served.splits.push(split);
            served.workers.push(*worker);
            served.tasks += limit;
        }
        served
    }

    /// The ready lanes of all the shelves a worker looks at, in order, so many of each band. Where none of them is due
    /// yet, those that are due first, and when that is.
    fn candidates(&self, shelves: &[Shelf]) -> (Vec<Candidate>, Option<Timestamp>) {
        let now = self.deps.clock.now();
        let levels = shelves.iter().filter_map(|shelf| self.board.ready(shelf)).flat_map(by_priority);
        let ranks = levels.flat_map(|level| level.take(LANES_PER_CLAIM));
        let mut candidates: Vec<Candidate> = ranks.map(|rank| Candidate::of(*rank, self.aging, now)).collect();
        candidates.sort_unstable();
        candidates.dedup();
        let first_due = candidates.iter().map(|candidate| candidate.due_at).min();
        let due_by = first_due.filter(|first| *first > now);
        candidates.retain(|candidate| candidate.due_at <= due_by.unwrap_or(now));
        let mut left = [LANES_PER_CLAIM; Band::ALL.len()];
        candidates.retain(|candidate| {
            let left = &mut left[candidate.band() as usize];
            let is_kept = *left > 0;
            *left = left.saturating_sub(1);
            is_kept
        });
        (candidates, due_by)
    }

    fn launch_pull(&mut self, served: Vec<Served>) {
        let (mut tenants, mut splits) = (Vec::new(), Vec::new());
        let (mut workers, mut claims) = (Vec::new(), Vec::new());
        for one in served {
            tenants.push(one.tenant);
            splits.extend(one.splits);
            workers.extend(one.workers);
            claims.extend(one.claims);
        }
        self.flights.launch(&self.deps.store, Flight::Pull { tenants, claims: splits, workers }, claims);
    }

    /// A claim for workers has landed: gives them what it took.
    pub(super) fn pulled(&mut self, splits: &[Split], workers: Vec<u64>, answers: Vec<Claimed>, report: &mut Report) {
        for ((worker, split), answer) in workers.into_iter().zip(splits).zip(answers) {
            report.more |= self.learn(&answer);
            self.pull_bands.settle(split, Some(&answer), &self.board);
            report.pulled += answer.tasks.len();
            self.hand_out(worker, answer.tasks);
        }
    }

    /// Gives a worker what was claimed for it.
    pub(super) fn hand_out(&mut self, worker: u64, tasks: Vec<Task>) {
        if tasks.is_empty() {
            return;
        }
        let now = self.deps.clock.now();
        let last_due = tasks.iter().map(|task| task.due_at).max().filter(|due_at| *due_at > now);
        let not_before = last_due.map(|due_at| Instant::now() + due_at.duration_from(now));
        let handout = Handout::new(tasks, self.returns.clone()).not_before(not_before);
        if let Some(waiting) = self.waiters.remove(worker) {
            waiting.answer(Ok(handout));
        }
    }

    /// Answers the workers that did not want to wait and for whom there is nothing, or no store.
    pub(super) fn dismiss_the_impatient(&mut self, failure: Option<&StoreError>) {
        for worker in std::mem::take(&mut self.impatient) {
            let Some(waiting) = self.waiters.get(worker) else { continue };
            // What is ready for it is known when the claim has landed that is under way.
            let nobody_knows = self.flights.is_pulling(&waiting.ask.tenant);
            let something_ready = shelves(waiting).iter().any(|shelf| self.board.ready(shelf).is_some());
            if nobody_knows || (something_ready && failure.is_none()) {
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
