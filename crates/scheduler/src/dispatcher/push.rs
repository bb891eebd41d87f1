//! The push side: which due webhooks are claimed now, and sent to their workers.
//!
//! Current tasks come first: those that came due since this node owns their lane. The backlog
//! follows, within the remaining room and its tokens. Tenants share the slots by their
//! weights, and the bands of a tenant share its part. Invariant: tasks are claimed only from lanes
//! whose partition this node owns, and every claim names the terms of that ownership.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use punctual_core::lane::Lane;
use punctual_core::store::{Claim, Claimed, DispatchTo};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tokio::time::Instant;

use super::bands::{BandShares, BandSplit, LaneCandidate};
use super::calls::ClaimPurpose;
use super::dispatch_core::DispatchCore;
use super::plan::{PLAN_LANES_MAX, PushPlan};
use super::{Config, Deps, Report};
use crate::backlog_rate::BacklogRate;
use crate::fairness::TenantClocks;
use crate::lanes::{ClaimScope, Ranks, by_priority};
use crate::polls::UntakenTask;
use crate::targets::Slot;
use crate::webhook_path::{CallTurn, Unsent};

/// The maximum number of lanes of one tenant and priority that a pass considers. It skips those of
/// crowded targets.
const LANES_LOOKED_AT_MAX: usize = 1_000;
/// The maximum number of lanes of one tenant and priority that a pass claims from.
const PRIORITY_LANES_MAX: usize = 32;
/// How many priorities there are.
const PRIORITIES: usize = 10;
/// The maximum number of tenants that a pass claims for; the next pass continues after them.
const PASS_TENANTS_MAX: usize = 64;
/// When tasks that could not be sent are due again.
const SEND_RETRY_MILLIS: i64 = 1_000;

/// How tenants and bands share webhooks, and what the last claims left.
pub(super) struct Push {
    clocks: TenantClocks,
    bands: BandShares,
    backlog_bands: BandShares,
    backlog_rate: BacklogRate,
    /// The last tenants of the last pass, if there are too many tenants for one pass.
    last_tenant: String,
    last_backlog_tenant: String,
    /// What the claim of current tasks left for the backlog, once it is answered.
    current_remainder: Option<CurrentRemainder>,
    /// Whether ready lanes found no slot or no room in the last pass.
    is_blocked: bool,
    /// Whether slots were missing, not room.
    are_slots_full: bool,
    /// Where the claimed tasks go.
    to: DispatchTo,
}

/// What an answered claim of current tasks left.
#[derive(Clone, Copy, Debug)]
struct CurrentRemainder {
    /// How many tasks the backlog may still claim in this pass.
    left: usize,
    /// Whether it moved a task or a lane, so that there may be more.
    moved: bool,
}

impl Push {
    pub fn new(deps: &Deps, config: &Config) -> Self {
        Self {
            clocks: TenantClocks::new(config.fairness.tenants.clone()),
            bands: BandShares::new(config.fairness.bands),
            backlog_bands: BandShares::new(config.fairness.bands),
            backlog_rate: BacklogRate::new(config.backlog_per_second, Instant::now()),
            last_tenant: String::new(),
            last_backlog_tenant: String::new(),
            current_remainder: None,
            is_blocked: false,
            are_slots_full: false,
            to: deps.webhooks.claims_to(config.visibility),
        }
    }

    /// Whether a free slot would let it claim more.
    pub fn waits_for_slots(&self) -> bool {
        self.is_blocked
    }

    /// Whether room at the workers would let it claim more.
    pub fn waits_for_room(&self) -> bool {
        self.is_blocked && !self.are_slots_full
    }

    /// Whether the claim of current tasks is answered and the backlog is next.
    pub fn is_backlog_next(&self) -> bool {
        self.current_remainder.is_some()
    }

    /// How long until there are tokens for the backlog; none if there are some, or if there is no
    /// backlog.
    pub fn until_tokens(&self, core: &DispatchCore) -> Option<Duration> {
        let has_backlog = !core.lanes.backlog().is_empty();
        has_backlog.then(|| self.backlog_rate.wait(Instant::now())).filter(|wait| !wait.is_zero())
    }

    /// Where claimed tasks go.
    pub fn claims_to(&self) -> DispatchTo {
        self.to.clone()
    }

    /// Claims webhooks, unless such a claim is under way: current tasks first, and the backlog when
    /// that claim is answered.
    pub async fn launch(&mut self, core: &mut DispatchCore) {
        if core.lanes.claims().is_pushing() {
            return;
        }
        if let Some(CurrentRemainder { left, moved }) = self.current_remainder {
            if self.launch_backlog(core, left).await {
                return;
            }
            self.current_remainder = None;
            // There were no current tasks a moment ago: do not ask again.
            if !moved {
                return;
            }
        }
        let tasks_max = core.config.claim_batch;
        let (claims, splits) = self.plan_current(core, tasks_max).await;
        if claims.is_empty() {
            self.launch_backlog(core, tasks_max).await;
        } else {
            core.launch(ClaimScope::Push, ClaimPurpose::Push(splits), claims);
        }
    }

    async fn launch_backlog(&mut self, core: &mut DispatchCore, tasks_max: usize) -> bool {
        let (claims, splits) = self.plan_backlog(core, tasks_max).await;
        let is_launched = !claims.is_empty();
        if is_launched {
            core.launch(ClaimScope::Push, ClaimPurpose::Backlog(splits), claims);
        }
        is_launched
    }

    /// Plans claims on ready lanes whose targets have slots, within the room at their workers. From
    /// a lane with a backlog it claims only current tasks.
    async fn plan_current(&mut self, core: &mut DispatchCore, tasks_max: usize) -> (Vec<Claim>, Vec<BandSplit>) {
        self.is_blocked = !core.lanes.ready().pushed().is_empty();
        if !self.is_blocked {
            return (Vec::new(), Vec::new());
        }
        let room = self.room(core, tasks_max).await;
        let (now, lanes, owned) = (core.now(), &core.lanes, &core.deps.owned);
        let tenants = next_tenants(lanes.ready().pushed().tenants(), &mut self.last_tenant, &self.clocks);
        let lanes_max = lanes_of_each(tenants.len());
        let mut plan = PushPlan::new(&core.deps.targets, &self.clocks, room);
        let mut overdue = Vec::new();
        for ranks in tenants {
            for level in by_priority(ranks) {
                let mut added = 0;
                for rank in level.take(LANES_LOOKED_AT_MAX) {
                    if plan.is_full() || added == lanes_max {
                        break;
                    }
                    let Some(lane) = lanes.lane(rank.lane) else { continue };
                    let Some(term) = owned.term_of(&lane.key) else { continue };
                    let candidate = LaneCandidate::of(*rank, core.aging, now);
                    let from = lanes.has_backlog(lane.id).then_some(term.since);
                    if rank.due_at < term.since && !self.backlog_rate.is_unlimited() {
                        overdue.push((lane, rank.due_at, candidate, term));
                    } else if plan.add(lane, candidate, term, from) {
                        added += 1;
                    }
                }
            }
        }
        // Their heads belong to the backlog. Whether they have current tasks is not known yet.
        overdue.retain(|(lane, _, candidate, term)| plan.add(lane, *candidate, *term, Some(term.since)));
        let backlog: Vec<(Arc<Lane>, Timestamp)> =
            overdue.into_iter().map(|(lane, due_at, ..)| (Arc::clone(lane), due_at)).collect();
        let planned = plan.claims(&mut self.bands, &self.to);
        for (lane, due_at) in backlog {
            core.lanes.note_backlog(&lane, due_at);
        }
        planned
    }

    /// Plans claims on the backlog within its tokens, the room and the slots.
    async fn plan_backlog(&mut self, core: &DispatchCore, tasks_max: usize) -> (Vec<Claim>, Vec<BandSplit>) {
        let lanes = &core.lanes;
        let allowance = if lanes.backlog().is_empty() { 0 } else { self.backlog_rate.allowance(Instant::now()) };
        let tasks_max = tasks_max.min(allowance);
        if tasks_max == 0 {
            return (Vec::new(), Vec::new());
        }
        self.is_blocked = true;
        let (room, now) = (self.room(core, tasks_max).await, core.now());
        let tenants = next_tenants(lanes.backlog().tenants(), &mut self.last_backlog_tenant, &self.clocks);
        let lanes_max = lanes_of_each(tenants.len());
        let mut plan = PushPlan::new(&core.deps.targets, &self.clocks, room);
        for ranks in tenants {
            for level in by_priority(ranks) {
                // A lane that is still ready has current tasks, which go first.
                let quiet = level.filter(|rank| !lanes.is_ready(rank.lane));
                let mut added = 0;
                for rank in quiet.take(LANES_LOOKED_AT_MAX) {
                    if plan.is_full() || added == lanes_max {
                        break;
                    }
                    let Some(lane) = lanes.lane(rank.lane) else { continue };
                    let Some(term) = core.deps.owned.term_of(&lane.key) else { continue };
                    added += usize::from(plan.add(lane, LaneCandidate::of(*rank, core.aging, now), term, None));
                }
            }
        }
        plan.claims(&mut self.backlog_bands, &self.to)
    }

    /// Handles the answer of a claim of current tasks: sends them.
    pub async fn finish(
        &mut self,
        core: &mut DispatchCore,
        splits: &[BandSplit],
        answers: Vec<Claimed>,
        report: &mut Report,
    ) {
        let (mut tasks, mut moved) = (Vec::new(), false);
        self.clocks.serve(served(splits, &answers));
        for (answer, split) in answers.into_iter().zip(splits) {
            moved |= core.correct_lanes(&answer) || !answer.not_owned.is_empty();
            self.bands.reconcile(split, Some(&answer), &core.lanes);
            tasks.extend(self.tasks_of(core, answer));
        }
        report.more |= moved;
        self.current_remainder =
            Some(CurrentRemainder { left: core.config.claim_batch.saturating_sub(tasks.len()), moved });
        report.pushed += send(core, tasks, CallTurn::InOrder).await;
    }

    /// Handles the answer of a claim on the backlog: sends the tasks.
    pub async fn finish_backlog(
        &mut self,
        core: &mut DispatchCore,
        splits: &[BandSplit],
        answers: Vec<Claimed>,
        report: &mut Report,
    ) {
        let mut tasks = Vec::new();
        self.clocks.serve(served(splits, &answers));
        report.more |= self.current_remainder.take().is_some_and(|after| after.moved);
        for (answer, split) in answers.into_iter().zip(splits) {
            report.more |= !answer.tasks.is_empty() || !answer.not_owned.is_empty();
            correct_backlogs(core, &answer);
            self.backlog_bands.reconcile(split, Some(&answer), &core.lanes);
            tasks.extend(self.tasks_of(core, answer));
        }
        report.pushed += send(core, tasks, CallTurn::InOrder).await;
    }

    /// Handles a failed claim of current tasks. Its lanes stay ready for a later pass.
    pub fn fail(&mut self, core: &DispatchCore, splits: &[BandSplit]) {
        self.bands.reconcile_failed(splits, &core.lanes);
    }

    /// Handles a claim on the backlog that failed. Its lanes keep their backlogs for a later pass.
    pub fn fail_backlog(&mut self, core: &DispatchCore, splits: &[BandSplit]) {
        self.backlog_bands.reconcile_failed(splits, &core.lanes);
    }

    /// The tasks of an answer. Forgets partitions that another node owns, and pays tokens for tasks
    /// of the backlog.
    pub fn tasks_of(&mut self, core: &DispatchCore, answer: Claimed) -> Vec<Task> {
        let owned = &core.deps.owned;
        if !answer.not_owned.is_empty() {
            owned.forget(&answer.not_owned);
        }
        let is_backlog = |task: &&Task| owned.term_of(&task.lane.key).is_some_and(|term| task.due_at < term.since);
        self.backlog_rate.take(answer.tasks.iter().filter(is_backlog).count(), Instant::now());
        answer.tasks
    }

    /// How many tasks can be sent, at most `tasks_max`.
    async fn room(&mut self, core: &DispatchCore, tasks_max: usize) -> usize {
        let room = core.deps.webhooks.room().await.min(tasks_max);
        self.are_slots_full = room > 0;
        room
    }
}

/// Corrects the backlogs of lanes by a claim's answer.
fn correct_backlogs(core: &mut DispatchCore, answer: &Claimed) {
    let now = core.now();
    for (id, head) in &answer.next_due {
        let Some(lane) = core.lanes.lane(*id) else { continue };
        let since = core.deps.owned.term_of(&lane.key).map(|term| term.since);
        core.lanes.correct_backlog(*id, *head, since, now);
    }
    core.limit(answer, now);
}

/// Sends claimed tasks to their workers; returns how many.
pub(super) async fn send(core: &DispatchCore, tasks: Vec<Task>, turn: CallTurn) -> usize {
    if tasks.is_empty() {
        return 0;
    }
    let count = tasks.len();
    core.deps.targets.take_for(tasks.iter().map(|task| &task.lane.key));
    if let Err(Unsent { tasks, error }) = core.deps.webhooks.send(tasks, turn).await {
        tracing::warn!(error = %error, tasks = count, "cannot send tasks to their workers; giving them back for a second");
        for task in &tasks {
            core.deps.targets.give_back(&Slot::of_lane(&task.lane.key));
        }
        let untaken = tasks.iter().map(UntakenTask::of).collect();
        core.give_back(untaken, core.now().plus_millis(SEND_RETRY_MILLIS)).await;
        return 0;
    }
    count
}

/// The ranks of the tenants of this pass: those after the last one, and then from the first again.
/// The tenant whose clock is behind comes first.
fn next_tenants<'a>(tenants: &'a BTreeMap<String, Ranks>, last: &mut String, clocks: &TenantClocks) -> Vec<&'a Ranks> {
    let behind = tenants.range::<String, _>((Excluded(&*last), Unbounded));
    let mut chosen: Vec<(&String, &Ranks)> = if tenants.len() <= PASS_TENANTS_MAX {
        tenants.iter().collect()
    } else {
        behind.chain(tenants).take(PASS_TENANTS_MAX).collect()
    };
    if let Some((tenant, _)) = chosen.last() {
        (*tenant).clone_into(last);
    }
    chosen.sort_by_cached_key(|(tenant, _)| clocks.after(tenant, 0));
    chosen.into_iter().map(|(_, ranks)| ranks).collect()
}

/// How many lanes of a priority each of `tenants` tenants may add, so that one tenant does not fill
/// the pass.
fn lanes_of_each(tenants: usize) -> usize {
    (PLAN_LANES_MAX / PRIORITIES / tenants.max(1)).clamp(1, PRIORITY_LANES_MAX)
}

/// How many tasks the tenants of these claims got.
fn served<'a>(splits: &'a [BandSplit], answers: &'a [Claimed]) -> impl Iterator<Item = (&'a str, usize)> {
    debug_assert_eq!(splits.len(), answers.len(), "an answer for each claim");
    splits.iter().zip(answers).map(|(split, answer)| (split.tenant.as_str(), answer.tasks.len()))
}
