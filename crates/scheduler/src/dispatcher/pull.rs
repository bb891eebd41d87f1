//! The pull side: which waiting poll claims from which lanes.
//!
//! Tenants share the tasks of a pass by deficit round robin. The polls of a tenant are served in
//! the order in which they arrived. The claim of a poll is split between the bands of its lanes.
//! Invariant: at most one claim for the pull workers of a tenant is under way.

use std::collections::{BTreeSet, HashMap, HashSet};

use punctual_core::store::{Claim, Claimant, Claimed, StoreError};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::Report;
use super::bands::{BandShares, BandSplit, LaneCandidate};
use super::calls::ClaimPurpose;
use super::dispatch_core::DispatchCore;
use crate::fairness::{self, Band, Contender, TenantDeficits};
use crate::lanes::{ClaimScope, Lanes, PollKey, by_priority};
use crate::polls::{Grant, PollError, PollReceiver, UntakenTask, WaitingPoll};
use crate::waiting_polls::{PollNumber, WaitingPolls, poll_keys};

/// The maximum number of lanes of one band in a poll's claim.
const BAND_LANES_MAX: usize = 32;
/// The maximum number of polls with the same key that a pass serves. It is enough to drain many
/// tasks by single leases, and one due task does not cause a claim for each of a thousand polls.
const KEY_POLLS_MAX: usize = 16;
/// Tenants that want fewer tasks than this share a call, so that many tenants need few calls.
const SHARED_CALL_TASKS: usize = 64;

/// The waiting polls, and how tenants share the tasks that are claimed for them.
pub(super) struct Pull {
    receiver: PollReceiver,
    /// A poll that was received while the loop slept.
    received: Option<WaitingPoll>,
    waiting: WaitingPolls,
    waiting_max: usize,
    /// Polls that want an answer at once, even if it is an empty one.
    impatient: Vec<PollNumber>,
    /// Keys that may have both a ready lane and a waiting poll.
    open_keys: HashSet<PollKey>,
    tenants: TenantDeficits,
    bands: BandShares,
    /// Tasks that were claimed for workers that have disconnected: the channel and what it brought.
    returns: mpsc::UnboundedSender<Vec<UntakenTask>>,
    returned: mpsc::UnboundedReceiver<Vec<UntakenTask>>,
    abandoned: Vec<UntakenTask>,
}

/// The claims for the polls of a tenant.
struct TenantClaims {
    tenant: String,
    claims: Vec<Claim>,
    splits: Vec<BandSplit>,
    polls: Vec<PollNumber>,
    tasks: usize,
}

impl Pull {
    pub fn new(receiver: PollReceiver, waiting_max: usize, fairness: &fairness::Config) -> Self {
        let (returns, returned) = mpsc::unbounded_channel();
        Self {
            receiver,
            received: None,
            waiting: WaitingPolls::default(),
            waiting_max,
            impatient: Vec::new(),
            open_keys: HashSet::new(),
            tenants: TenantDeficits::new(fairness.tenants.clone()),
            bands: BandShares::new(fairness.bands),
            returns,
            returned,
            abandoned: Vec::new(),
        }
    }

    /// Returns when a poll or an abandoned task has arrived. Dropping the future loses nothing.
    pub async fn wait(&mut self) {
        tokio::select! {
            biased;
            Some(poll) = self.receiver.polls.recv() => self.received = Some(poll),
            Some(tasks) = self.returned.recv() => self.abandoned.extend(tasks),
        }
    }

    /// Takes the polls that have arrived; calls `arrived` with the tenant of each.
    pub fn take_polls(&mut self, mut arrived: impl FnMut(&str)) {
        while let Some(poll) = self.received.take().or_else(|| self.receiver.polls.try_recv().ok()) {
            if self.waiting.len() >= self.waiting_max {
                poll.answer(Err(PollError::Crowded));
                continue;
            }
            arrived(&poll.request.tenant);
            self.open_keys.extend(poll_keys(&poll));
            let is_impatient = poll.request.wait.is_zero();
            let number = self.waiting.add(poll);
            if is_impatient {
                self.impatient.push(number);
            }
        }
    }

    /// Notes that lanes became ready under these keys.
    pub fn open(&mut self, keys: Vec<PollKey>) {
        self.open_keys.extend(keys);
    }

    /// Forgets the polls whose workers have disconnected.
    pub fn forget_disconnected(&mut self) {
        self.waiting.remove_disconnected();
    }

    /// Gives back the tasks that disconnected workers did not take.
    pub async fn give_back_abandoned(&mut self, core: &DispatchCore) {
        while let Ok(tasks) = self.returned.try_recv() {
            self.abandoned.extend(tasks);
        }
        core.give_back(std::mem::take(&mut self.abandoned), core.now()).await;
    }

    /// Claims for the polls that have ready lanes, except for tenants with a claim under way.
    pub fn launch(&mut self, core: &mut DispatchCore) {
        if core.calls.is_full() {
            return;
        }
        let mut waiting = self.servable(&core.lanes);
        // If not all can be served, the longest wait comes first.
        waiting.sort_unstable_by_key(|(_, polls)| polls.first().copied());
        let wanted = |poll: &PollNumber| self.waiting.get(*poll).map_or(0, |poll| poll.request.max_tasks);
        let contenders: Vec<Contender<'_>> = waiting
            .iter()
            .map(|(tenant, polls)| Contender { tenant, demand: polls.iter().map(wanted).sum() })
            .collect();
        let under_way = core.lanes.claims().pulling();
        let shares = self.tenants.split(core.config.claim_batch, &contenders, &under_way);
        let mut together: Vec<TenantClaims> = Vec::new();
        for ((tenant, polls), share) in waiting.into_iter().zip(shares) {
            let claims = self.claims_of(core, tenant, &polls, share);
            if claims.tasks >= SHARED_CALL_TASKS {
                launch_claims(core, vec![claims]);
            } else if !claims.claims.is_empty() {
                if together.iter().map(|claims| claims.tasks).sum::<usize>() + claims.tasks > SHARED_CALL_TASKS {
                    launch_claims(core, std::mem::take(&mut together));
                }
                together.push(claims);
            }
        }
        if !together.is_empty() {
            launch_claims(core, together);
        }
    }

    /// The tenants that have both ready lanes and waiting polls, with these polls in the order of
    /// their arrival. A key stays open until it has no lane or no poll.
    fn servable(&mut self, lanes: &Lanes) -> Vec<(String, BTreeSet<PollNumber>)> {
        let mut by_tenant: HashMap<String, BTreeSet<PollNumber>> = HashMap::new();
        self.open_keys.retain(|key| {
            if lanes.claims().is_pulling(key.tenant()) {
                return true;
            }
            if lanes.ready().pulled(key).is_none() {
                return false;
            }
            let polls = self.waiting.first_with(key, KEY_POLLS_MAX);
            let meet = !polls.is_empty();
            if meet {
                by_tenant.entry(key.tenant().to_owned()).or_default().extend(polls);
            }
            meet
        });
        by_tenant.into_iter().collect()
    }

    /// Claims for the first polls of a tenant, up to its share of tasks.
    fn claims_of(
        &mut self,
        core: &DispatchCore,
        tenant: String,
        polls: &BTreeSet<PollNumber>,
        share: usize,
    ) -> TenantClaims {
        let (claims, splits, served) = (Vec::new(), Vec::new(), Vec::new());
        let mut of_tenant = TenantClaims { tenant, claims, splits, polls: served, tasks: 0 };
        for number in polls {
            let Some(poll) = self.waiting.get(*number) else { continue };
            let (wanted, left) = (poll.request.max_tasks, share - of_tenant.tasks);
            // Only the first poll of a pass may get less than it wants.
            if left == 0 || (wanted > left && of_tenant.tasks > 0) {
                break;
            }
            let limit = wanted.min(left);
            let (name, lease_millis) = (poll.request.worker.clone(), poll.request.lease_millis);
            let (candidates, due_by) = candidates(core, &poll_keys(poll));
            let claimant = Claimant::Worker { name, lease_millis, due_by };
            let (lanes, split) = self.bands.split(&of_tenant.tenant, &candidates, limit, [usize::MAX; 3]);
            of_tenant.claims.push(Claim { lanes, limit, claimant });
            of_tenant.splits.push(split);
            of_tenant.polls.push(*number);
            of_tenant.tasks += limit;
        }
        of_tenant
    }

    /// Handles the answer of a claim for polls: grants them the tasks.
    pub fn finish(
        &mut self,
        core: &mut DispatchCore,
        splits: &[BandSplit],
        polls: Vec<PollNumber>,
        answers: Vec<Claimed>,
        report: &mut Report,
    ) {
        debug_assert_eq!(polls.len(), answers.len(), "an answer for each poll");
        for ((poll, split), answer) in polls.into_iter().zip(splits).zip(answers) {
            report.more |= core.correct_lanes(&answer);
            self.bands.reconcile(split, Some(&answer), &core.lanes);
            report.pulled += answer.tasks.len();
            self.grant(core, poll, answer.tasks);
        }
    }

    /// Handles a claim for polls that failed. They keep waiting, and a later pass serves them.
    pub fn fail(&mut self, core: &DispatchCore, splits: &[BandSplit]) {
        self.bands.reconcile_failed(splits, &core.lanes);
    }

    /// Answers a poll with the tasks that were claimed for it.
    pub fn grant(&mut self, core: &DispatchCore, poll: PollNumber, tasks: Vec<Task>) {
        if tasks.is_empty() {
            return;
        }
        let now = core.now();
        let last_due = tasks.iter().map(|task| task.due_at).max().filter(|due_at| *due_at > now);
        let not_before = last_due.map(|due_at| Instant::now() + due_at.duration_from(now));
        let grant = Grant::new(tasks, self.returns.clone()).not_before(not_before);
        if let Some(poll) = self.waiting.remove(poll) {
            poll.answer(Ok(grant));
        }
    }

    /// Answers the polls that do not wait, if they have no ready lane or the store fails.
    pub fn dismiss_impatient(&mut self, core: &DispatchCore, failure: Option<&StoreError>) {
        for number in std::mem::take(&mut self.impatient) {
            let Some(poll) = self.waiting.get(number) else { continue };
            // The claim under way will show what is ready for it.
            let is_unknown = core.lanes.claims().is_pulling(&poll.request.tenant);
            let is_any_ready = || poll_keys(poll).iter().any(|key| core.lanes.ready().pulled(key).is_some());
            if is_unknown || (failure.is_none() && is_any_ready()) {
                self.impatient.push(number);
            } else if let Some(poll) = self.waiting.remove(number) {
                poll.answer(match failure {
                    Some(error) => Err(PollError::Store(error.clone())),
                    None => Ok(self.no_tasks()),
                });
            }
        }
    }

    /// Reports whether the store answers. A poll that times out meanwhile gets the store's error.
    pub fn report_health(&self, failure: Option<&StoreError>) {
        if self.receiver.health.borrow().is_some() || failure.is_some() {
            self.receiver.health.send_replace(failure.cloned());
        }
    }

    /// Answers every waiting poll with an empty list, and takes no more.
    pub async fn close(&mut self, core: &DispatchCore) {
        self.receiver.polls.close();
        let late = self.received.take().into_iter().chain(std::iter::from_fn(|| self.receiver.polls.try_recv().ok()));
        let unanswered: Vec<WaitingPoll> = late.collect();
        for poll in unanswered.into_iter().chain(self.waiting.drain()) {
            poll.answer(Ok(Grant::new(Vec::new(), self.returns.clone())));
        }
        self.give_back_abandoned(core).await;
    }

    /// The first poll that may take from a lane.
    pub fn poll_for(&mut self, keys: &[PollKey]) -> Option<PollNumber> {
        keys.iter().find_map(|key| self.waiting.first_with(key, 1).first().copied())
    }

    /// A poll as the claimant of tasks.
    pub fn claimant(&self, poll: PollNumber) -> Option<Claimant> {
        let request = &self.waiting.get(poll)?.request;
        Some(Claimant::Worker { name: request.worker.clone(), lease_millis: request.lease_millis, due_by: None })
    }

    fn no_tasks(&self) -> Grant {
        Grant::new(Vec::new(), self.returns.clone())
    }
}

/// The ready lanes that a poll may claim from, in order, at most [`BAND_LANES_MAX`] of each band.
/// If none of them is due yet: those that are due first, and when that is.
fn candidates(core: &DispatchCore, keys: &[PollKey]) -> (Vec<LaneCandidate>, Option<Timestamp>) {
    let now = core.now();
    let levels = keys.iter().filter_map(|key| core.lanes.ready().pulled(key)).flat_map(by_priority);
    let ranks = levels.flat_map(|level| level.take(BAND_LANES_MAX));
    let mut candidates: Vec<LaneCandidate> = ranks.map(|rank| LaneCandidate::of(*rank, core.aging, now)).collect();
    candidates.sort_unstable();
    candidates.dedup();
    let first_due = candidates.iter().map(|candidate| candidate.due_at).min();
    let due_by = first_due.filter(|first| *first > now);
    candidates.retain(|candidate| candidate.due_at <= due_by.unwrap_or(now));
    let mut left = [BAND_LANES_MAX; Band::ALL.len()];
    candidates.retain(|candidate| {
        let left = &mut left[candidate.band() as usize];
        let is_kept = *left > 0;
        *left = left.saturating_sub(1);
        is_kept
    });
    (candidates, due_by)
}

fn launch_claims(core: &mut DispatchCore, of_tenants: Vec<TenantClaims>) {
    let (mut tenants, mut splits) = (Vec::new(), Vec::new());
    let (mut polls, mut claims) = (Vec::new(), Vec::new());
    for one in of_tenants {
        tenants.push(one.tenant);
        splits.extend(one.splits);
        polls.extend(one.polls);
        claims.extend(one.claims);
    }
    core.launch(ClaimScope::Pull(tenants), ClaimPurpose::Pull { splits, polls }, claims);
}
