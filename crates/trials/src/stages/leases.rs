//! Stages about workers and their leases.

use std::time::Duration;

use tokio::task::JoinSet;

use super::take;
use crate::caller::{Wish, WorkerPoll};
use crate::history::WorkerReport;
use crate::workload::Scene;

/// Longer than a lease and the reaper's rounds together.
const TAKEN_BACK: Duration = Duration::from_secs(4);
/// Long enough for a task that is due.
const SOON: Duration = Duration::from_secs(2);

/// A worker sleeps through its lease and comes back when another one has the task: its reports have
/// no effect.
pub async fn overtaken(scene: &Scene) {
    let caller = &scene.caller;
    caller.submit_surely(&Wish::new(scene.key("overtaken"), "overtaken")).await;
    let Some(first) = take(scene, "sleeper", "overtaken", SOON).await else { return };
    let second = take(scene, "successor", "overtaken", TAKEN_BACK).await;
    for report in [WorkerReport::Heartbeat, WorkerReport::Failed, WorkerReport::Released, WorkerReport::Completed] {
        caller.settle(&first, report).await;
    }
    if let Some(second) = second {
        caller.settle(&second, WorkerReport::Heartbeat).await;
        caller.settle_surely(&second, WorkerReport::Completed).await;
        caller.settle(&second, WorkerReport::Completed).await;
        caller.settle(&first, WorkerReport::Completed).await;
    }
}

/// A worker disappears, and another one finishes its work.
pub async fn vanished(scene: &Scene) {
    scene.caller.submit_surely(&Wish::new(scene.key("vanished"), "vanished")).await;
    take(scene, "ghost", "vanished", SOON).await;
    if let Some(held) = take(scene, "heir", "vanished", TAKEN_BACK).await {
        scene.caller.settle_surely(&held, WorkerReport::Completed).await;
    }
}

/// A running task is cancelled, and its worker reports a completion nevertheless.
pub async fn asked_to_stop(scene: &Scene) {
    let caller = &scene.caller;
    let Some(task) = caller.submit_surely(&Wish::new(scene.key("stopped"), "stopped")).await else { return };
    let held = take(scene, "stubborn", "stopped", SOON).await;
    caller.cancel(task).await;
    if let Some(held) = held {
        caller.settle(&held, WorkerReport::Heartbeat).await;
        caller.settle_surely(&held, WorkerReport::Completed).await;
    }
    caller.cancel(task).await;
}

/// A task uses up its retries, is re-driven, and then completes. Another one fails for good at
/// once.
pub async fn used_up(scene: &Scene) {
    let caller = &scene.caller;
    let wish = Wish::new(scene.key("used-up"), "used-up").retries(1);
    let Some(task) = caller.submit_surely(&wish).await else { return };
    for report in [WorkerReport::Failed, WorkerReport::Failed] {
        if let Some(held) = take(scene, "clumsy", "used-up", SOON).await {
            caller.settle_surely(&held, report).await;
        }
    }
    caller.redrive(task).await;
    for report in [WorkerReport::FailedForGood, WorkerReport::Completed] {
        if let Some(held) = take(scene, "clumsy", "used-up", SOON).await {
            caller.settle_surely(&held, report).await;
        }
        caller.redrive(task).await;
    }
}

/// A worker gives a task back, and gets it again.
pub async fn given_back(scene: &Scene) {
    scene.caller.submit_surely(&Wish::new(scene.key("given-back"), "given-back")).await;
    for report in [WorkerReport::Released, WorkerReport::Completed] {
        if let Some(held) = take(scene, "picky", "given-back", SOON).await {
            scene.caller.settle_surely(&held, report).await;
        }
    }
}

/// Four workers empty a queue together.
pub async fn side_by_side(scene: &Scene) {
    let wishes: Vec<Wish> = (0..24).map(|_| Wish::new(scene.key("shared"), "shared")).collect();
    scene.caller.submit_batch(&wishes).await;
    let mut workers = JoinSet::new();
    for number in 0..4 {
        let caller = scene.caller.clone();
        workers.spawn(async move {
            let name = format!("one-of-four-{number}");
            let wait = Duration::from_millis(300);
            loop {
                let held = caller
                    .lease(&WorkerPoll { worker: &name, queues: &["shared"], most: 2, wait, lease_seconds: 2 })
                    .await;
                if held.is_empty() {
                    break;
                }
                for held in held {
                    caller.settle_surely(&held, WorkerReport::Completed).await;
                }
            }
        });
    }
    while let Some(ended) = workers.join_next().await {
        ended.expect("a worker does not panic");
    }
}
