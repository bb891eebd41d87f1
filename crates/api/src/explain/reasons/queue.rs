//! Reasons that concern the queue of a task: a pause and its limits.

use punctual_client::Reason;
use punctual_core::obstacles::TasksAhead;

use super::reason;
use super::wording::{doing, later, quantity, queue_ahead, thousands, with_position};
use crate::explain::facts::Facts;

/// The pause, unless it ends before the task is due.
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

/// The concurrency limit: it is reached, or the tasks ahead will reach it, which comes next.
pub(super) fn concurrency(facts: &Facts) -> Option<Reason> {
    let limit = facts.queue.settings.max_concurrency?;
    let free = u64::from(limit).saturating_sub(facts.held);
    if facts.ahead.tasks < free {
        return None;
    }
    let (queue, most) = (facts.queue.name.clone(), quantity(u64::from(limit), "task"));
    let (run, line) = (doing(facts.held, "run"), queue_ahead(facts.ahead));
    let message = if free == 0 {
        format!("queue {queue} runs at most {most} at once, and {run}; {line}")
    } else {
        format!("after that: queue {queue} runs at most {most} at once, of which {run} now; {line}")
    };
    let base = Reason {
        queue: Some(queue),
        limit: Some(limit),
        running: Some(facts.held),
        comes_next: free > 0,
        ..reason("queue_concurrency", message)
    };
    Some(with_position(base, facts.ahead))
}

/// The limit of its concurrency key, if that is reached.
pub(super) fn concurrency_key(facts: &Facts) -> Option<Reason> {
    let (limit, key) = (facts.queue.settings.max_per_key?, facts.task.body.concurrency_key.clone()?);
    if facts.held_of_key < u64::from(limit) {
        return None;
    }
    let (queue, most) = (facts.queue.name.clone(), quantity(u64::from(limit), "task"));
    let run = doing(facts.held_of_key, "run");
    let message = format!("queue {queue} runs at most {most} of concurrency key {key} at once, and {run}");
    Some(Reason {
        queue: Some(queue),
        concurrency_key: Some(key),
        limit: Some(limit),
        running: Some(facts.held_of_key),
        ..reason("concurrency_key", message)
    })
}

/// The rate limit: no token is left, or the tasks ahead will take all, which comes next.
pub(super) fn rate(facts: &Facts) -> Option<Reason> {
    let limit = facts.queue.settings.rate_limit?;
    let bucket = facts.bucket.map_or_else(|| limit.full(facts.now), |bucket| limit.refill(bucket, facts.now));
    let TasksAhead { tasks, or_more } = facts.ahead;
    if usize::try_from(tasks).is_ok_and(|tasks| tasks < bucket.whole()) {
        return None;
    }
    let (queue, comes_next) = (facts.queue.name.clone(), bucket.whole() > 0);
    #[expect(clippy::cast_precision_loss, reason = "a double is exact far beyond any count of tasks")]
    let missing = tasks as f64 + 1.0 - bucket.tokens;
    let until = (!or_more).then(|| later(facts.now, missing, limit.per_second));
    let per_second = limit.per_second.to_string();
    let message = format!(
        "{}queue {queue} begins {per_second} {} a second (burst {}); {}{}",
        if comes_next { "after that: " } else { "" },
        if per_second == "1" { "task" } else { "tasks" },
        thousands(u64::from(limit.burst)),
        queue_ahead(facts.ahead),
        until.map(|until| format!("; it may begin at {until} at the earliest")).unwrap_or_default()
    );
    let base = Reason {
        until,
        queue: Some(queue),
        per_second: Some(limit.per_second),
        burst: Some(limit.burst),
        comes_next,
        ..reason("queue_rate", message)
    };
    Some(with_position(base, facts.ahead))
}
