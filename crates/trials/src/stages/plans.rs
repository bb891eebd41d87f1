//! Stages about due instants: cancellations, edits, expiries, repeated keys and webhooks.

use std::time::Duration;

use punctual_core::ids::TaskId;
use serde_json::json;
use tokio::task::JoinSet;

use super::take;
use crate::caller::Wish;
use crate::history::WorkerReport;
use crate::workload::Scene;

/// Submits to a queue, does something to the task, and waits for it there as a worker would.
async fn planned(scene: &Scene, wish: &Wish, queue: &str, wait: Duration, act: impl AsyncFnOnce(TaskId)) {
    let Some(task) = scene.caller.submit_surely(wish).await else { return };
    act(task).await;
    if let Some(held) = take(scene, "watcher", queue, wait).await {
        scene.caller.settle_surely(&held, WorkerReport::Completed).await;
    }
}

/// A task is cancelled before its time; a worker that waits for it gets nothing.
pub async fn cancelled_in_time(scene: &Scene) {
    let wish = Wish::new(scene.key("cancelled"), "cancelled").due_at(scene.in_millis(700));
    planned(scene, &wish, "cancelled", Duration::from_millis(1_500), async |task| {
        scene.caller.cancel(task).await;
    })
    .await;
}

/// A task gets a later time and another payload.
pub async fn postponed(scene: &Scene) {
    let wish = Wish::new(scene.key("postponed"), "postponed").due_at(scene.in_millis(700));
    planned(scene, &wish, "postponed", Duration::from_millis(2_500), async |task| {
        scene.caller.edit(task, Some(scene.in_millis(1_500)), Some(json!("instead"))).await;
    })
    .await;
}

/// A task's expiry passes before a worker polls.
pub async fn expired(scene: &Scene) {
    let expires_at = scene.in_millis(400);
    let wish = Wish::new(scene.key("expired"), "expired").expires_at(expires_at);
    planned(scene, &wish, "expired", Duration::from_millis(300), async |_| {
        tokio::time::sleep(expires_at.duration_from(scene.in_millis(0)) + Duration::from_millis(100)).await;
    })
    .await;
}

/// One key, four submissions at once, and one more afterwards.
pub async fn submitted_again(scene: &Scene) {
    let wish = Wish::new(scene.key("again"), "again");
    let mut clients = JoinSet::new();
    for _ in 0..4 {
        let (caller, wish) = (scene.caller.clone(), wish.clone());
        clients.spawn(async move { caller.submit(&wish).await });
    }
    clients.join_all().await;
    planned(scene, &wish, "again", Duration::from_secs(2), async |_| {}).await;
    // Wrong extra tasks are worked off too, so that the trial can continue.
    while let Some(held) = take(scene, "watcher", "again", Duration::from_millis(100)).await {
        scene.caller.settle_surely(&held, WorkerReport::Completed).await;
    }
}

/// Webhooks for later, at three moments of a second.
pub async fn pushed_later(scene: &Scene) {
    for millis in [600, 900, 1_200] {
        let wish = Wish::new(scene.key("pushed"), "pushed").due_at(scene.in_millis(millis));
        scene.caller.submit_surely(&wish.pushed_to(&scene.targets.good())).await;
    }
}

/// A webhook to a target that answers 404.
pub async fn pushed_in_vain(scene: &Scene) {
    let wish = Wish::new(scene.key("in-vain"), "pushed").pushed_to(&scene.targets.gone());
    scene.caller.submit_surely(&wish).await;
}
