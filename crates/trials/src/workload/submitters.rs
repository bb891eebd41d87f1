//! Clients that submit tasks.

use std::collections::BTreeSet;
use std::time::Duration;

use punctual_core::ids::TaskId;
use punctual_core::task::OnDependencyFailure;
use rand::RngExt;
use rand::rngs::StdRng;

use super::{QUEUE, Scene, dawdle, recent};
use crate::caller::Wish;
use crate::history::CallAnswer;
use crate::orders::NARROW;

/// The number of queues with webhooks.
const PUSHED_QUEUES: usize = 16;
/// The number of ordering keys: so few that tasks usually wait behind each.
const ORDERING_KEYS: usize = 3;
/// The number of latest tasks that dependencies are drawn from.
const RECENT: usize = 20;
/// The policies for a dependency that does not complete.
const POLICIES: [OnDependencyFailure; 3] =
    [OnDependencyFailure::Cancel, OnDependencyFailure::Run, OnDependencyFailure::Fail];

/// Submits tasks one by one, each until it is answered.
pub async fn singles(scene: Scene, mut dice: StdRng, pause: Duration) {
    while !scene.is_over() {
        let wish = wish(&scene, &mut dice);
        submit(&scene, &wish).await;
        // Some clients repeat their submissions.
        if dice.random_ratio(1, 20) {
            scene.caller.submit(&wish).await;
        }
        dawdle(&mut dice, pause).await;
    }
}

/// Submits tasks under a few ordering keys.
pub async fn ordered(scene: Scene, mut dice: StdRng, pause: Duration) {
    while !scene.is_over() {
        let key = format!("turns-{}", dice.random_range(0..ORDERING_KEYS));
        submit(&scene, &wish(&scene, &mut dice).ordered_by(&key)).await;
        dawdle(&mut dice, pause).await;
    }
}

/// Submits tasks that depend on one or two of the latest, some of which have dependencies
/// themselves.
pub async fn dependent(scene: Scene, mut dice: StdRng, pause: Duration) {
    while !scene.is_over() {
        let parents: BTreeSet<TaskId> = {
            let known = scene.known.lock();
            (0..dice.random_range(1..3)).filter_map(|_| recent(&known, RECENT, &mut dice)).collect()
        };
        if !parents.is_empty() {
            let parents: Vec<TaskId> = parents.into_iter().collect();
            let policy = POLICIES[dice.random_range(0..POLICIES.len())];
            submit(&scene, &wish(&scene, &mut dice).after(&parents, policy)).await;
        }
        dawdle(&mut dice, pause).await;
    }
}

/// Submits tasks in batches, each batch until all of it is answered.
pub async fn batches(scene: Scene, mut dice: StdRng, pause: Duration) {
    while !scene.is_over() {
        let mut open: Vec<Wish> = (0..dice.random_range(2..12)).map(|_| wish(&scene, &mut dice)).collect();
        while !open.is_empty() {
            let answers = scene.caller.submit_batch(&open).await;
            let unknown = |answer: &CallAnswer| matches!(answer, CallAnswer::Unknown);
            open = open.into_iter().zip(answers).filter(|(_, answer)| unknown(answer)).map(|(wish, _)| wish).collect();
        }
        dawdle(&mut dice, pause).await;
    }
}

/// Submits a task until it is answered. A waiting task is left to the meddlers.
async fn submit(scene: &Scene, wish: &Wish) {
    let submission = wish.submission();
    let waits = submission.due_at.is_some() || !submission.depends_on.is_empty();
    if let Some(task) = scene.caller.submit_surely(wish).await {
        scene.known.lock().push(task);
        if waits {
            scene.waiting.lock().push(task);
        }
    }
}

/// A random task: pulled or pushed, due now or later, sometimes in a queue with a low limit.
fn wish(scene: &Scene, dice: &mut StdRng) -> Wish {
    let wish = Wish::new(scene.key("load"), QUEUE).of_type(["a", "b", "c"][dice.random_range(0..3)]);
    let wish = if dice.random_ratio(1, 2) { wish } else { wish.due_at(scene.in_millis(dice.random_range(500..3_000))) };
    let wish = if dice.random_ratio(2, 5) {
        // No worker polls for them, and every node of a cluster owns some of their queues.
        wish.in_queue(&format!("pushed-{}", dice.random_range(0..PUSHED_QUEUES))).pushed_to(&scene.targets.any(dice))
    } else {
        wish
    };
    if dice.random_ratio(1, 15) { wish.in_queue(NARROW) } else { wish }
}
