//! The push side of a turn: which due webhooks may be published now.
//!
//! First everything that came due since this node owns its lane; then, with what room is left
//! and as many tokens as there are, what it found overdue. Nothing is claimed of a lane whose
//! partition is not owned, and every claim names the terms in which they are.

use std::sync::Arc;

use punctual_core::broker::{Message, WEBHOOK_POOL};
use punctual_core::lane::{Lane, Route};
use punctual_core::store::{Claim, Claimed, StoreError};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;
use tokio::time::Instant;

use crate::board::Shelf;
use crate::dispatcher::Dispatcher;
use crate::dispatcher::plan::Plan;

/// Lanes one turn looks at: those of crowded targets are passed over.
const LANES_LOOKED_AT: usize = 10_000;
/// How long tasks wait that could not be published.
const BROKER_PAUSE_MILLIS: i64 = 1_000;

impl Dispatcher {
    /// Claims on ready lanes whose targets have places, as far as the broker has room. Of a lane with a found backlog
    /// only what came due since.
    pub(super) async fn plan_push(&mut self, most: usize) -> Vec<Claim> {
        self.push_blocked = self.board.ready(&Shelf::Push).next().is_some();
        if !self.push_blocked {
            return Vec::new();
        }
        let room = self.room(most).await;
        let mut plan = Plan::new(&self.deps.targets, room);
        let mut found = Vec::new();
        for rank in self.board.ready(&Shelf::Push).take(LANES_LOOKED_AT) {
            if plan.is_full() {
                break;
            }
            let Some(lane) = self.board.lane(rank.lane) else { continue };
            let Some(held) = self.deps.owned.held(&lane.key) else { continue };
            if rank.due_at < held.since && !self.backlog.is_unlimited() {
                found.push((lane, rank.due_at, held));
            } else {
                plan.add(lane, held, self.backlog.lane(lane.id).map(|_| held.since));
            }
        }
        // Their heads are older than anything else's, but nobody knows yet what came due since.
        found.retain(|(lane, _, held)| plan.add(lane, *held, Some(held.since)));
        let found: Vec<(Arc<Lane>, Timestamp)> =
            found.into_iter().map(|(lane, due_at, _)| (Arc::clone(lane), due_at)).collect();
        let claims = plan.claims(self.visibility_millis());
        for (lane, due_at) in found {
            self.backlog.note(&lane, due_at);
        }
        claims
    }

    /// Takes as much of the found backlog as there are tokens for, and room and places left; answers how many tasks it
    /// published, and whether there is more to do at once.
    pub(super) async fn push_backlog(&mut self, most: usize) -> Result<(usize, bool), StoreError> {
        let most = most.min(self.backlog.allowance(Instant::now()));
        if most == 0 {
            return Ok((0, false));
        }
        self.push_blocked = true;
        let room = self.room(most).await;
        let mut plan = Plan::new(&self.deps.targets, room);
        // A lane that is still ready has live work, which goes first.
        let lanes = self.backlog.lanes().filter(|lane| !self.board.is_ready(lane.id));
        for lane in lanes.take(LANES_LOOKED_AT) {
            if plan.is_full() {
                break;
            }
            if let Some(held) = self.deps.owned.held(&lane.key) {
                plan.add(lane, held, None);
            }
        }
        let claims = plan.claims(self.visibility_millis());
        if claims.is_empty() {
            return Ok((0, false));
        }
        let (mut tasks, mut more) = (Vec::new(), false);
        for answer in self.deps.store.claim(claims).await? {
            more |= !answer.tasks.is_empty() || !answer.lost.is_empty();
            self.learn_of_backlog(&answer);
            tasks.extend(self.claimed(answer));
        }
        Ok((self.publish(tasks).await, more))
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

    fn visibility_millis(&self) -> u64 {
        u64::try_from(self.config.visibility.as_millis()).unwrap_or(u64::MAX)
    }

    /// Publishes claimed tasks; answers how many.
    pub(super) async fn publish(&mut self, tasks: Vec<Task>) -> usize {
        if tasks.is_empty() {
            return 0;
        }
        let messages: Vec<Message> = tasks.iter().map(message).collect();
        for message in &messages {
            self.deps.targets.take(&message.target);
        }
        let count = messages.len();
        let targets: Vec<String> = messages.iter().map(|message| message.target.clone()).collect();
        if let Err(error) = self.deps.broker.publish(messages).await {
            tracing::warn!(error = %error, tasks = count, "could not publish tasks, giving them back");
            for target in &targets {
                self.deps.targets.give_back(target);
            }
            let later = self.deps.clock.now().plus_millis(BROKER_PAUSE_MILLIS);
            self.give_back(tasks, later).await;
            return 0;
        }
        count
    }
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
