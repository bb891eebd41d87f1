//! The push side of a turn: which due webhooks may be published now.

use std::collections::HashMap;

use punctual_core::broker::{Message, WEBHOOK_POOL};
use punctual_core::lane::Route;
use punctual_core::store::{Claim, Taker};
use punctual_core::task::Task;

use crate::board::Shelf;
use crate::dispatcher::Dispatcher;

/// Lanes one turn takes from.
const LANES_PER_CLAIM: usize = 256;
/// Lanes one turn looks at: those of crowded targets are passed over.
const LANES_LOOKED_AT: usize = 10_000;
/// How long tasks wait that could not be published.
const BROKER_PAUSE_MILLIS: i64 = 1_000;

impl Dispatcher {
    /// A claim on ready lanes whose targets have places, as far as the broker has room.
    pub(super) async fn plan_push(&mut self, most: usize) -> Option<Claim> {
        self.push_blocked = false;
        self.board.ready(&Shelf::Push).next()?;
        self.push_blocked = true;
        let room = self.deps.broker.room(WEBHOOK_POOL).await.unwrap_or(0).min(most);
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut lanes = Vec::new();
        let mut total = 0;
        for rank in self.board.ready(&Shelf::Push).take(LANES_LOOKED_AT) {
            if total >= room || lanes.len() >= LANES_PER_CLAIM {
                break;
            }
            let Some(Route::Push(target)) = self.board.lane(rank.lane).map(|lane| &lane.key.route) else { continue };
            let free = places.entry(target).or_insert_with(|| self.deps.targets.free(target));
            let take = (*free).min(room - total);
            if take > 0 {
                // A lane may have fewer; what it does not use of its target's places is offered again next turn.
                *free -= take;
                total += take;
                lanes.push((rank.lane, take));
            }
        }
        self.places_full = room > 0;
        let visibility_millis = u64::try_from(self.config.visibility.as_millis()).unwrap_or(u64::MAX);
        let taker = Taker::Dispatch { visibility_millis };
        (total > 0).then_some(Claim { lanes, limit: total, taker })
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
