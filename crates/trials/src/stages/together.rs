//! Stages about tasks that wait for each other.

use std::time::Duration;

use punctual_core::task::OnDependencyFailure;

use super::take;
use crate::caller::Wish;
use crate::history::WorkerReport;
use crate::orders::NARROW;
use crate::workload::Scene;

/// Long enough for a task that waits for a few webhooks before it.
const SOON: Duration = Duration::from_secs(2);

/// Tasks of one ordering key, every other one a slow webhook.
pub async fn in_turn(scene: &Scene) {
    let wish = |number: usize| {
        let wish = Wish::new(scene.key("in-turn"), "in-turn").ordered_by("in-turn");
        if number.is_multiple_of(2) { wish } else { wish.in_queue("pushed").pushed_to(&scene.targets.slow()) }
    };
    let wishes: Vec<Wish> = (0..8).map(wish).collect();
    scene.caller.submit_batch(&wishes).await;
    work_off(scene, "in-turn", 4).await;
}

/// A task that depends on a due one and on a later one, and three that depend on one that fails for
/// good.
pub async fn after_others(scene: &Scene) {
    let caller = &scene.caller;
    let wish = || Wish::new(scene.key("after"), "after");
    let soon = caller.submit_surely(&wish()).await;
    let later = caller.submit_surely(&wish().due_at(scene.in_millis(700))).await;
    if let (Some(soon), Some(later)) = (soon, later) {
        caller.submit_surely(&wish().after(&[soon, later], OnDependencyFailure::Cancel)).await;
    }
    let failing = wish().in_queue("pushed").pushed_to(&scene.targets.gone());
    if let Some(failing) = caller.submit_surely(&failing).await {
        for policy in [OnDependencyFailure::Cancel, OnDependencyFailure::Fail, OnDependencyFailure::Run] {
            caller.submit_surely(&wish().after(&[failing], policy)).await;
        }
    }
    // The two, the one that depends on both, and the one whose policy is to run anyway.
    work_off(scene, "after", 4).await;
}

/// More slow webhooks than their queue has places.
pub async fn in_few_places(scene: &Scene) {
    let wish = || Wish::new(scene.key("narrow"), NARROW).pushed_to(&scene.targets.slow());
    let wishes: Vec<Wish> = (0..10).map(|_| wish()).collect();
    scene.caller.submit_batch(&wishes).await;
}

/// Completes this many tasks of a queue, one after the other.
async fn work_off(scene: &Scene, queue: &str, tasks: usize) {
    for _ in 0..tasks {
        if let Some(held) = take(scene, "patient", queue, SOON).await {
            scene.caller.settle_surely(&held, WorkerReport::Completed).await;
        }
    }
}
