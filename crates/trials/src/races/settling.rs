//! Races for the outcome of a run, all with the token that holds the task.

use std::collections::BTreeSet;
use std::pin::Pin;

use rand::RngExt;

use super::legal::{Legal, RoundOutcome, shown, shown_with_state};
use super::round::Round;
use crate::caller::HeldLease;
use crate::history::{CallAnswer, WorkerReport};

/// The same completion, reported two or ten times.
pub const SAME_COMPLETION: &[Legal] = &[
    Legal::new("two, all accepted as one", &["2 at once", "200"], "COMPLETED by A"),
    Legal::new("ten, all accepted as one", &["10 at once", "200"], "COMPLETED by A"),
];

/// The number of callers that report the same at once.
pub const REPORTERS: usize = 10;

/// See [`SAME_COMPLETION`].
pub async fn same_completion(round: &mut Round) -> RoundOutcome {
    let Some(held) = round.running().await else { return RoundOutcome::never_began() };
    let reporters = if round.dice.random_ratio(1, 3) { REPORTERS } else { 2 };
    let mut contenders: Vec<Pin<Box<dyn Future<Output = Vec<CallAnswer>> + Send>>> = Vec::new();
    for seat in 0..reporters {
        // One in four reports it twice in one batch.
        if round.dice.random_ratio(1, 4) {
            let (caller, twice) = (round.seat(seat), vec![(held.clone(), WorkerReport::Completed); 2]);
            contenders.push(Box::pin(async move { caller.settle_all(&twice).await }));
        } else {
            let once = round.settling(seat, &held, WorkerReport::Completed);
            contenders.push(Box::pin(async move { vec![once.await] }));
        }
    }
    let answers: BTreeSet<String> = round.all(contenders).await.iter().flatten().map(shown).collect();
    let answers = [format!("{reporters} at once")].into_iter().chain(answers);
    round.outcome(held.task, answers, round.state(held.task).await)
}

/// Two completions with different results.
pub const DIFFERENT_COMPLETIONS: &[Legal] = &[
    Legal::new("the first result", &["200", "409 stale_token"], "COMPLETED by A"),
    Legal::new("the second result", &["409 stale_token", "200"], "COMPLETED by B"),
];

/// See [`DIFFERENT_COMPLETIONS`].
pub async fn different_completions(round: &mut Round) -> RoundOutcome {
    let Some(held) = round.running().await else { return RoundOutcome::never_began() };
    // A result contains its worker's name, so another name makes another result.
    let other = HeldLease { worker: "B".to_owned(), ..held.clone() };
    let (first, second) =
        (round.settling(0, &held, WorkerReport::Completed), round.settling(1, &other, WorkerReport::Completed));
    let (first, second) = round.pair(first, second).await;
    round.outcome(held.task, [shown(&first), shown(&second)], round.state(held.task).await)
}

/// A completion and a failure.
pub const COMPLETE_AGAINST_FAIL: &[Legal] = &[
    Legal::new("completed", &["200", "409 stale_token"], "COMPLETED by A"),
    Legal::new("failed, and tried again", &["409 stale_token", "200"], "PENDING"),
    Legal::new("failed for good", &["409 stale_token", "200"], "DEAD_LETTERED"),
];

/// See [`COMPLETE_AGAINST_FAIL`].
pub async fn complete_against_fail(round: &mut Round) -> RoundOutcome {
    let report = if round.dice.random() { WorkerReport::Failed } else { WorkerReport::FailedForGood };
    complete_against(round, report).await
}

/// A completion and a release.
pub const COMPLETE_AGAINST_RELEASE: &[Legal] = &[
    Legal::new("completed", &["200", "409 stale_token"], "COMPLETED by A"),
    Legal::new("given back", &["409 stale_token", "200"], "PENDING"),
];

/// See [`COMPLETE_AGAINST_RELEASE`].
pub async fn complete_against_release(round: &mut Round) -> RoundOutcome {
    complete_against(round, WorkerReport::Released).await
}

async fn complete_against(round: &mut Round, report: WorkerReport) -> RoundOutcome {
    let Some(held) = round.running().await else { return RoundOutcome::never_began() };
    let (completing, other) = (round.settling(0, &held, WorkerReport::Completed), round.settling(1, &held, report));
    let (completed, other) = round.pair(completing, other).await;
    let end = round.state(held.task).await;
    round.finish(held.task, &[&held]).await;
    round.outcome(held.task, [shown(&completed), shown(&other)], end)
}

/// A cancellation amid a flood of heartbeats.
pub const CANCEL_AGAINST_HEARTBEATS: &[Legal] = &[
    Legal::new("asked to stop with the next heartbeat", &["202 RUNNING", "200", "410 cancelled"], "CANCELLED"),
    Legal::new(
        "asked to stop within the flood",
        &["202 RUNNING", "200, then 410 cancelled", "410 cancelled"],
        "CANCELLED",
    ),
    Legal::new(
        "asked to stop within the flood, and stopped before the answer",
        &["202 CANCELLED", "200, then 410 cancelled", "410 cancelled"],
        "CANCELLED",
    )
    .rare(),
    Legal::new("asked to stop before the flood", &["202 RUNNING", "410 cancelled", "410 cancelled"], "CANCELLED")
        .rare(),
    Legal::new(
        "asked to stop before the flood, and stopped before the answer",
        &["202 CANCELLED", "410 cancelled", "410 cancelled"],
        "CANCELLED",
    )
    .rare(),
];

/// See [`CANCEL_AGAINST_HEARTBEATS`].
pub async fn cancel_against_heartbeats(round: &mut Round) -> RoundOutcome {
    let Some(held) = round.running().await else { return RoundOutcome::never_began() };
    let (task, beating, cancelling) = (held.task, round.seat(0), round.seat(1));
    round.flood(&held).await;
    let (worker, beats) = (held.clone(), round.dice.random_range(1..5));
    let beats = async move {
        let mut answers = Vec::new();
        for _ in 0..beats {
            answers.push(shown(&beating.settle(&worker, WorkerReport::Heartbeat).await));
        }
        answers.dedup();
        answers.join(", then ")
    };
    let (cancelled, answers) = round.pair(async move { cancelling.cancel(task).await }, beats).await;
    let next = shown(&round.settling(0, &held, WorkerReport::Heartbeat).await);
    round.finish(task, &[&held]).await;
    round.outcome(task, [shown_with_state(&cancelled), answers, next], round.state(task).await)
}

/// A completion and a cancellation of the running task.
pub const COMPLETE_AGAINST_CANCEL: &[Legal] = &[
    Legal::new("completed", &["200", "409 already_final"], "COMPLETED by A"),
    Legal::new("asked to stop, and discarded", &["410 cancelled", "202 RUNNING"], "CANCELLED"),
    Legal::new("asked to stop, and discarded before the answer", &["410 cancelled", "202 CANCELLED"], "CANCELLED")
        .rare(),
];

/// See [`COMPLETE_AGAINST_CANCEL`].
pub async fn complete_against_cancel(round: &mut Round) -> RoundOutcome {
    let Some(held) = round.running().await else { return RoundOutcome::never_began() };
    let (task, caller) = (held.task, round.seat(1));
    let completing = round.settling(0, &held, WorkerReport::Completed);
    let (completed, cancelled) = round.pair(completing, async move { caller.cancel(task).await }).await;
    round.outcome(task, [shown(&completed), shown_with_state(&cancelled)], round.state(task).await)
}
