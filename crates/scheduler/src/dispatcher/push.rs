//! The push side of a turn: which due webhooks may be published now.
//!
//! First everything that came due since this node owns its lane; then, with what room is left
//! and as many tokens as there are, what it found overdue. Tenants share the places by their weights,
//! and the bands of a tenant share its part. Nothing is claimed of a lane whose
//! partition is not owned, and every claim names the terms in which they are.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use punctual_core::broker::{Message, WEBHOOK_POOL};
use punctual_core::lane::{Lane, Route};
use punctual_core::store::{Claim, Claimed};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tokio::time::Instant;

use super::flights::{Flight, Split};
use super::split::Candidate;
use crate::board::{Ranks, by_priority};
use crate::dispatcher::plan::{LANES_PER_TURN, Plan};
use crate::dispatcher::{Dispatcher, Report};
use crate::fairness::Rounds;
use crate::targets::Place;

/// Lanes of one tenant and priority that a turn looks at: those of crowded targets are passed over …
const LANES_LOOKED_AT: usize = 1_000;
/// … and takes from at the most.
const LANES_OF_PRIORITY: usize = 32;
/// The priorities that a task may have.
const PRIORITIES: usize = 10;
/// Tenants one turn takes from; the next one goes on with those behind them.
const TENANTS_PER_TURN: usize = 64;
/// How long tasks wait that could not be published.
const BROKER_PAUSE_MILLIS: i64 = 1_000;

/// The live part of a turn has landed.
#[derive(Clone, Copy, Debug)]
pub(super) struct AfterLive {
    /// What it left for the found backlog.
    left: usize,
    /// Whether it moved anything, so that there may be more.
    moved: bool,
}

impl Dispatcher {
    /// Claims webhooks, unless a claim of some is under way: of what came due since this node owns it, and then, when
    /// that has landed, of the found backlog.
    pub(super) async fn launch_push(&mut self) {
        if self.flights.is_pushing() {
            return;
        }
        if let Some(AfterLive { left, moved }) = self.after_live {
            if self.launch_backlog(left).await {
                return;
            }
            self.after_live = None;
            // Nobody asks again for what was not there a moment ago.
            if !moved {
                return;
            }
        }
        let most = self.config.claim_batch;
        let (claims, splits) = self.plan_push(most).await;
        if claims.is_empty() {
            self.launch_backlog(most).await;
        } else {
            self.flights.launch(&self.deps.store, Flight::Push(splits), claims);
        }
    }

    async fn launch_backlog(&mut self, most: usize) -> bool {
        let (claims, splits) = self.plan_backlog(most).await;
        let is_launched = !claims.is_empty();
        if is_launched {
            self.flights.launch(&self.deps.store, Flight::Backlog(splits), claims);
        }
        is_launched
    }

    /// Claims on ready lanes whose targets have places, as far as the broker has room. Of a lane with a found backlog
    /// only what came due since.
    async fn plan_push(&mut self, most: usize) -> (Vec<Claim>, Vec<Split>) {
        self.push_blocked = !self.board.pushed().is_empty();
        if !self.push_blocked {
            return (Vec::new(), Vec::new());
        }
        let (room, now) = (self.room(most).await, self.deps.clock.now());
        let tenants = take_turns(self.board.pushed(), &mut self.last_pushed, &self.push_rounds);
        let most_lanes = lanes_of_each(tenants.len());
        let mut plan = Plan::new(&self.deps.targets, &self.push_rounds, room);
        let mut found = Vec::new();
        for ranks in tenants {
            for level in by_priority(ranks) {
                let mut added = 0;
                for rank in level.take(LANES_LOOKED_AT) {
                    if plan.is_full() || added == most_lanes {
                        break;
                    }
                    let Some(lane) = self.board.lane(rank.lane) else { continue };
                    let Some(held) = self.deps.owned.held(&lane.key) else { continue };
                    let candidate = Candidate::of(*rank, self.aging, now);
                    if rank.due_at < held.since && !self.backlog.is_unlimited() {
                        found.push((lane, rank.due_at, candidate, held));
                    } else if plan.add(lane, candidate, held, self.backlog.lane(lane.id).map(|_| held.since)) {
                        added += 1;
                    }
                }
            }
        }
        // Their heads are older than anything else's, but nobody knows yet what came due since.
        found.retain(|(lane, _, candidate, held)| plan.add(lane, *candidate, *held, Some(held.since)));
        let found: Vec<(Arc<Lane>, Timestamp)> =
            found.into_iter().map(|(lane, due_at, ..)| (Arc::clone(lane), due_at)).collect();
        let visibility = self.visibility_millis();
        let planned = plan.claims(&mut self.push_bands, visibility);
        for (lane, due_at) in found {
            self.backlog.note(&lane, due_at);
        }
        planned
    }

    /// Claims as much of the found backlog as there are tokens for, and room and places left.
    async fn plan_backlog(&mut self, most: usize) -> (Vec<Claim>, Vec<Split>) {
        let most = most.min(self.backlog.allowance(Instant::now()));
        if most == 0 {
            return (Vec::new(), Vec::new());
        }
        self.push_blocked = true;
        let (room, now) = (self.room(most).await, self.deps.clock.now());
        let tenants = take_turns(self.backlog.by_tenant(), &mut self.last_found, &self.push_rounds);
        let most_lanes = lanes_of_each(tenants.len());
        let mut plan = Plan::new(&self.deps.targets, &self.push_rounds, room);
        for ranks in tenants {
            for level in by_priority(ranks) {
                // A lane that is still ready has live work, which goes first.
                let quiet = level.filter(|rank| !self.board.is_ready(rank.lane));
                let mut added = 0;
                for rank in quiet.take(LANES_LOOKED_AT) {
                    if plan.is_full() || added == most_lanes {
                        break;
                    }
                    let Some(lane) = self.backlog.lane(rank.lane) else { continue };
                    let Some(held) = self.deps.owned.held(&lane.key) else { continue };
                    added += usize::from(plan.add(lane, Candidate::of(*rank, self.aging, now), held, None));
                }
            }
        }
        let visibility = self.visibility_millis();
        plan.claims(&mut self.found_bands, visibility)
    }

    /// A claim of webhooks has landed: publishes what it took.
    pub(super) async fn pushed(&mut self, splits: &[Split], answers: Vec<Claimed>, report: &mut Report) {
        let (mut tasks, mut moved) = (Vec::new(), false);
        self.push_rounds.serve(served(splits, &answers));
        for (answer, split) in answers.into_iter().zip(splits) {
            moved |= self.learn(&answer) || !answer.lost.is_empty();
            self.push_bands.settle(split, Some(&answer), &self.board);
            tasks.extend(self.claimed(answer));
        }
        report.more |= moved;
        self.after_live = Some(AfterLive { left: self.config.claim_batch.saturating_sub(tasks.len()), moved });
        report.pushed += self.publish(tasks).await;
    }

    /// A claim of the found backlog has landed: publishes what it took.
    pub(super) async fn pushed_backlog(&mut self, splits: &[Split], answers: Vec<Claimed>, report: &mut Report) {
        let mut tasks = Vec::new();
        self.push_rounds.serve(served(splits, &answers));
        report.more |= self.after_live.take().is_some_and(|after| after.moved);
        for (answer, split) in answers.into_iter().zip(splits) {
            report.more |= !answer.tasks.is_empty() || !answer.lost.is_empty();
            self.learn_of_backlog(&answer);
            self.found_bands.settle(split, Some(&answer), &self.board);
            tasks.extend(self.claimed(answer));
        }
        report.pushed += self.publish(tasks).await;
    }

    /// What a claim on the backlog tells about the lanes.
    fn learn_of_backlog(&mut self, answer: &Claimed) {
        let now = self.deps.clock.now();
        for (id, head) in &answer.next_due {
            let Some(lane) = self.backlog.lane(*id).cloned() else { continue };
            let since = self.deps.owned.held(&lane.key).map(|held| held.since);
            match (head, since) {
                (Some(due_at), Some(since)) if *due_at < since => self.backlog.note(&lane, *due_at),
                _ => {
                    self.backlog.forget(*id);
                    // Nothing stands before what came due since, so this is the head of all.
                    if let (Some(due_at), Some(_)) = (head, since) {
                        self.board.note(&lane, *due_at, now);
                    }
                    self.board.correct(*id, *head, now);
                }
            }
        }
        self.hold_back(answer);
    }

    /// Takes in what a dispatch was given: forgets partitions that are lost, and pays for what was found.
    pub(super) fn claimed(&mut self, answer: Claimed) -> Vec<Task> {
        if !answer.lost.is_empty() {
            tracing::warn!(partitions = answer.lost.len(), "somebody else owns partitions that this node dispatched");
            self.deps.owned.lost(&answer.lost);
        }
        let owned = &self.deps.owned;
        let is_found = |task: &&Task| owned.held(&task.lane.key).is_some_and(|held| task.due_at < held.since);
        let found = answer.tasks.iter().filter(is_found).count();
        self.backlog.taken(found, Instant::now());
        answer.tasks
    }

    /// How many messages the broker takes, at most so many.
    async fn room(&mut self, most: usize) -> usize {
        let room = self.deps.broker.room(WEBHOOK_POOL).await.unwrap_or(0).min(most);
        self.places_full = room > 0;
        room
    }

    pub(super) fn visibility_millis(&self) -> u64 {
        u64::try_from(self.config.visibility.as_millis()).unwrap_or(u64::MAX)
    }

    /// Publishes claimed tasks; answers how many.
    pub(super) async fn publish(&mut self, tasks: Vec<Task>) -> usize {
        if tasks.is_empty() {
            return 0;
        }
        let messages: Vec<Message> = tasks.iter().map(message).collect();
        let places: Vec<Place> = messages.iter().map(Place::of).collect();
        for place in &places {
            self.deps.targets.take(place);
        }
        let count = messages.len();
        if let Err(error) = self.deps.broker.publish(messages).await {
            tracing::warn!(error = %error, tasks = count, "could not publish tasks, giving them back");
            for place in &places {
                self.deps.targets.give_back(place);
            }
            let later = self.deps.clock.now().plus_millis(BROKER_PAUSE_MILLIS);
            self.give_back(tasks, later).await;
            return 0;
        }
        count
    }
}

/// The ranks of the tenants that have their turn: those behind the last one, and from the beginning again. Whoever was
/// served least of late comes first, so that nobody is left out for ever where not all can be looked at.
fn take_turns<'a>(tenants: &'a BTreeMap<String, Ranks>, last: &mut String, rounds: &Rounds) -> Vec<&'a Ranks> {
    let behind = tenants.range::<String, _>((Excluded(&*last), Unbounded));
    let mut chosen: Vec<(&String, &Ranks)> = if tenants.len() <= TENANTS_PER_TURN {
        tenants.iter().collect()
    } else {
        behind.chain(tenants).take(TENANTS_PER_TURN).collect()
    };
    if let Some((tenant, _)) = chosen.last() {
        (*tenant).clone_into(last);
    }
    chosen.sort_by_cached_key(|(tenant, _)| rounds.after(tenant, 0));
    chosen.into_iter().map(|(_, ranks)| ranks).collect()
}

/// How many lanes of a priority each of so many tenants has looked at, so that those of one do not fill the turn.
fn lanes_of_each(tenants: usize) -> usize {
    (LANES_PER_TURN / PRIORITIES / tenants.max(1)).clamp(1, LANES_OF_PRIORITY)
}

/// How many tasks the tenants of these claims got.
fn served<'a>(splits: &'a [Split], answers: &'a [Claimed]) -> impl Iterator<Item = (&'a str, usize)> {
    splits.iter().zip(answers).map(|(split, answer)| (split.tenant.as_str(), answer.tasks.len()))
}

fn message(task: &Task) -> Message {
    let key = &task.lane.key;
    let target = match &key.route {
        Route::Push(target) => target.clone(),
        Route::Pull => String::new(),
    };
    Message {
        task_id: task.id,
        version: task.position.version,
        tenant: key.tenant.clone(),
        priority: key.priority,
        pool: WEBHOOK_POOL.to_owned(),
        target,
    }
}
