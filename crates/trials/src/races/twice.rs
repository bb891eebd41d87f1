//! Races between two callers that make the same call.

use std::time::Duration;

use punctual_core::ids::TaskId;
use rand::RngExt;
use serde_json::json;

use super::legal::{Legal, RoundOutcome, shown, shown_with_state};
use super::round::Round;
use crate::caller::HeldLease;
use crate::history::WorkerReport;

/// How long a worker waits for the one task that both poll for.
const SHARED: Duration = Duration::from_millis(300);
/// So far ahead that the task does not become due in its round.
const FAR_MILLIS: i64 = 600_000;

/// Two workers poll for one task.
pub const TWO_POLLS: &[Legal] = &[
    Legal::new("the first worker got it", &["lease", "nothing"], "RUNNING"),
    Legal::new("the second worker got it", &["nothing", "lease"], "RUNNING"),
];

/// See [`TWO_POLLS`].
pub async fn two_polls(round: &mut Round) -> RoundOutcome {
    let wish = round.wish();
    // Due before they poll, or while they wait.
    let wish = if round.dice.random() { wish } else { wish.due_at(round.in_millis(40)) };
    let Some(task) = round.submit(&wish).await else { return RoundOutcome::never_began() };
    let (first, second) = (round.poll(0, "A", SHARED, 60), round.poll(1, "B", SHARED, 60));
    let (first, second) = round.pair(first, second).await;
    let end = round.state(task).await;
    let got = |held: &Option<HeldLease>| if held.is_some() { "lease".to_owned() } else { "nothing".to_owned() };
    let answers = [got(&first), got(&second)];
    let held: Vec<&HeldLease> = first.iter().chain(&second).collect();
    round.finish(task, &held).await;
    round.outcome(task, answers, end)
}

/// Two clients re-drive one dead letter.
pub const REDRIVE_TWICE: &[Legal] = &[
    Legal::new("the first re-drove it", &["200", "409 not_dead_lettered"], "PENDING"),
    Legal::new("the second re-drove it", &["409 not_dead_lettered", "200"], "PENDING"),
];

/// See [`REDRIVE_TWICE`].
pub async fn redrive_twice(round: &mut Round) -> RoundOutcome {
    let Some(held) = round.running().await else { return RoundOutcome::never_began() };
    let task = held.task;
    round.seat(0).settle_surely(&held, WorkerReport::FailedForGood).await;
    let redrive = |seat: usize| {
        let caller = round.seat(seat);
        async move { caller.redrive(task).await }
    };
    let (first, second) = (redrive(0), redrive(1));
    let (first, second) = round.pair(first, second).await;
    let end = round.state(task).await;
    round.finish(task, &[]).await;
    round.outcome(task, [shown(&first), shown(&second)], end)
}

/// Two clients cancel one task, before it began or while it runs.
pub const CANCEL_TWICE: &[Legal] = &[
    Legal::new("waiting, cancelled once", &["200 CANCELLED", "200 CANCELLED"], "CANCELLED"),
    Legal::new("running, asked to stop once", &["202 RUNNING", "202 RUNNING"], "RUNNING"),
];

/// See [`CANCEL_TWICE`].
pub async fn cancel_twice(round: &mut Round) -> RoundOutcome {
    let runs = round.dice.random();
    let held = if runs { round.running().await } else { None };
    let task = if runs { held.as_ref().map(|held| held.task) } else { later(round).await };
    let Some(task) = task else { return RoundOutcome::never_began() };
    let cancel = |seat: usize| {
        let caller = round.seat(seat);
        async move { caller.cancel(task).await }
    };
    let (first, second) = (cancel(0), cancel(1));
    let (first, second) = round.pair(first, second).await;
    let end = round.state(task).await;
    if let Some(held) = held {
        round.finish(task, &[&held]).await;
    }
    round.outcome(task, [shown_with_state(&first), shown_with_state(&second)], end)
}

/// Two clients edit one task, both only at its first version.
pub const CONDITIONAL_EDITS: &[Legal] = &[
    Legal::new("the first was written", &["200", "412 version_mismatch", "first"], "PENDING"),
    Legal::new("the second was written", &["412 version_mismatch", "200", "second"], "PENDING"),
];

/// See [`CONDITIONAL_EDITS`].
pub async fn conditional_edits(round: &mut Round) -> RoundOutcome {
    let Some(task) = later(round).await else { return RoundOutcome::never_began() };
    let edit = |seat: usize, payload: &'static str| {
        let caller = round.seat(seat);
        async move { caller.edit_at(task, None, Some(json!(payload)), Some(1)).await }
    };
    let (first, second) = (edit(0, "first"), edit(1, "second"));
    let (first, second) = round.pair(first, second).await;
    let end = round.state(task).await;
    let kept = round.read(task).await["payload"].as_str().unwrap_or("neither").to_owned();
    round.seat(0).cancel(task).await;
    round.outcome(task, [shown(&first), shown(&second), kept], end)
}

/// A task that does not become due in its round.
async fn later(round: &Round) -> Option<TaskId> {
    round.submit(&round.wish().due_at(round.in_millis(FAR_MILLIS))).await
}
