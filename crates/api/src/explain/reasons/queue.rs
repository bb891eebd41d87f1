//! What a queue has against the begin of a task: a pause, its limits.

use punctual_client::Reason;
use punctual_core::obstacles::Ahead;

use super::{in_line, later, others, reason, thousands};
use crate::explain::facts::Facts;

/// A pause that is over before the task is due is not in its way.
pub(super) fn pause(facts: &Facts) -> Option<Reason> {
    let pause = facts.queue.paused(facts.now)?;
    if pause.until.is_some_and(|until| until <= facts.task.due_at) {
        return None;
    }
    let queue = facts.queue.name.clone();
    let ends = pause.until.map_or("until it is resumed".to_owned(), |until| format!("until {until}"));
    let why = pause.reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let message = format!("queue {queue} was paused by {} at {}, {ends}{why}", pause.by, pause.since);
    Some(Reason {
        since: Some(pause.since),
        until: pause.until,
        by: Some(pause.by.clone()),
        reason: pause.reason.clone(),
        queue: Some(queue),
        ..reason("queue_paused", message)
    })
}

/// As many run as may, or those before it take the places that are left.
pub(super) fn concurrency(facts: &Facts) -> Option<Reason> {
    let limit = facts.queue.settings.max_concurrency?;
    let free = u64::from(limit).saturating_sub(facts.held);
    if facts.ahead.tasks < free && !facts.ahead.or_more {
        return None;
    }
    let queue = facts.queue.name.clone();
    let message = format!(
        "queue {queue} runs at most {} at once, and {} run; {}",
        tasks(u64::from(limit)),
        thousands(facts.held),
        others(facts.ahead)
    );
    let told = Reason {
        queue: Some(queue),
        limit: Some(limit),
        running: Some(facts.held),
        ..reason("queue_concurrency", message)
    };
    Some(in_line(told, facts.ahead))
}

/// There is no token for it, or those before it take those that there are.
pub(super) fn rate(facts: &Facts) -> Option<Reason> {
    let limit = facts.queue.settings.rate_limit?;
    let bucket = facts.bucket.map_or_else(|| limit.full(facts.now), |bucket| limit.refill(bucket, facts.now));
    let Ahead { tasks, or_more } = facts.ahead;
    if usize::try_from(tasks).is_ok_and(|tasks| tasks < bucket.whole()) && !or_more {
        return None;
    }
    let queue = facts.queue.name.clone();
    let message = format!(
        "queue {queue} begins {} tasks a second (burst {}); {}",
        limit.per_second,
        thousands(u64::from(limit.burst)),
        others(facts.ahead)
    );
    #[expect(clippy::cast_precision_loss, reason = "nobody counts as far as a double cannot")]
    let missing = tasks as f64 + 1.0 - bucket.tokens;
    let told = Reason {
        until: (!or_more).then(|| later(facts.now, missing, limit.per_second)),
        queue: Some(queue),
        per_second: Some(limit.per_second),
        burst: Some(limit.burst),
        ..reason("queue_rate", message)
    };
    Some(in_line(told, facts.ahead))
}

fn tasks(count: u64) -> String {
    if count == 1 { "1 task".to_owned() } else { format!("{} tasks", thousands(count)) }
}
