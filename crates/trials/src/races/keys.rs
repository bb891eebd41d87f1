//! Races for an idempotency key, from a hundred connections at once.

use std::collections::{BTreeMap, BTreeSet};

use rand::RngExt;
use serde_json::json;

use super::legal::{Legal, RoundOutcome, shown};
use super::round::Round;
use crate::caller::Wish;
use crate::history::{CallAnswer, WorkerReport};

/// Connections that submit under one key.
pub const CONNECTIONS: usize = 100;

/// All with the same body.
pub const SAME_KEY: &[Legal] = &[
    Legal::new("one task, won from the first half", &["1 × 201", "99 × 200 replayed", "1 task"], "COMPLETED by Z")
        .first(0),
    Legal::new("one task, won from the second half", &["1 × 201", "99 × 200 replayed", "1 task"], "COMPLETED by Z")
        .first(1),
];

/// See [`SAME_KEY`].
pub async fn same_key(round: &mut Round) -> RoundOutcome {
    let wishes = vec![round.wish(); CONNECTIONS];
    submit(round, wishes).await
}

/// Every second one with another body.
pub const SAME_KEY_TWO_BODIES: &[Legal] = &[
    Legal::new(
        "the first body won",
        &["1 × 201", "49 × 200 replayed", "50 × 422 idempotency_key_reused", "1 task", "first"],
        "COMPLETED by Z",
    ),
    Legal::new(
        "the second body won",
        &["1 × 201", "49 × 200 replayed", "50 × 422 idempotency_key_reused", "1 task", "second"],
        "COMPLETED by Z",
    ),
];

/// See [`SAME_KEY_TWO_BODIES`].
pub async fn same_key_two_bodies(round: &mut Round) -> RoundOutcome {
    let bodies = ["first", "second"].map(|which| round.wish().payload(json!(which)));
    let wishes = bodies.into_iter().cycle().take(CONNECTIONS).collect();
    submit(round, wishes).await
}

async fn submit(round: &mut Round, wishes: Vec<Wish>) -> RoundOutcome {
    let submissions: Vec<_> = wishes
        .into_iter()
        .enumerate()
        .map(|(seat, wish)| {
            let wish = if round.dice.random_ratio(1, 4) { wish.keyed_by_header() } else { wish };
            let caller = round.seat(seat);
            async move { caller.submit(&wish).await }
        })
        .collect();
    let answers = round.all(submissions).await;
    let tasks: BTreeSet<_> = answers.iter().filter_map(|answer| answer.shown()?.task).collect();
    let created = answers.iter().position(|answer| answer.shown().is_some_and(|shown| shown.status == 201));
    let Some(task) = tasks.first().copied() else { return RoundOutcome::never_began() };
    let mut summary = counted(&answers);
    summary.push(format!("{} task", tasks.len()));
    let payload = round.read(task).await["payload"].as_str().map(str::to_owned);
    summary.extend(payload);
    // Finish all tasks, so that a second one shows in a history without other faults.
    for _ in &tasks {
        if let Some(held) = round.take_surely(0, "Z").await {
            round.seat(0).settle_surely(&held, WorkerReport::Completed).await;
        }
    }
    let outcome = round.outcome(task, summary, round.state(task).await);
    let first = usize::from(created.is_some_and(|winner| winner >= CONNECTIONS / 2));
    RoundOutcome { first, ..outcome }
}

/// How often each answer was given, as in `99 × 200 replayed`, by status.
fn counted(answers: &[CallAnswer]) -> Vec<String> {
    let mut counts: BTreeMap<(bool, String), usize> = BTreeMap::new();
    for answer in answers {
        let replayed = answer.shown().is_some_and(|shown| shown.replayed);
        let word = if replayed { format!("{} replayed", shown(answer)) } else { shown(answer) };
        *counts.entry((word != "201", word)).or_default() += 1;
    }
    counts.into_iter().map(|((_, word), count)| format!("{count} × {word}")).collect()
}
