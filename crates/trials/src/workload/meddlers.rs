//! Clients that change their minds: they cancel and edit tasks.

use std::time::Duration;

use punctual_core::ids::TaskId;
use rand::RngExt;
use rand::rngs::StdRng;
use serde_json::json;

use super::{Scene, dawdle, recent};

/// The longest pause of a meddler.
const PAUSE: Duration = Duration::from_millis(100);

/// Cancels tasks in any state.
pub async fn canceller(scene: Scene, mut dice: StdRng) {
    while !scene.is_over() {
        if let Some(task) = pick(&scene, &mut dice) {
            scene.caller.cancel(task).await;
        }
        dawdle(&mut dice, PAUSE * 2).await;
    }
}

/// Gives tasks another time or another payload.
pub async fn editor(scene: Scene, mut dice: StdRng) {
    while !scene.is_over() {
        if let Some(task) = pick(&scene, &mut dice) {
            let due_at = dice.random_ratio(2, 3).then(|| scene.in_millis(dice.random_range(200..1_500)));
            let payload = (due_at.is_none() || dice.random()).then(|| json!({"edited": dice.random::<u32>()}));
            scene.caller.edit(task, due_at, payload).await;
        }
        dawdle(&mut dice, PAUSE).await;
    }
}

/// Picks a recent task, which probably still waits.
fn pick(scene: &Scene, dice: &mut StdRng) -> Option<TaskId> {
    recent(&scene.waiting.lock(), 40, dice)
}
