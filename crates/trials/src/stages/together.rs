//! Tasks that wait for each other.

use std::time::Duration;

use super::take;
use crate::caller::Wish;
use crate::history::Said;
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

/// Completes so many tasks of a queue, one after the other.
async fn work_off(scene: &Scene, queue: &str, tasks: usize) {
    for _ in 0..tasks {
        if let Some(held) = take(scene, "patient", queue, SOON).await {
            scene.caller.settle_surely(&held, Said::Completed).await;
        }
    }
}
