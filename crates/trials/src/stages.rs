//! Situations that every trial goes through once, before the faults begin. The random load would
//! produce them only sometimes; here a bug that shows in one of them is found in every run.
//!
//! Each stage has a queue of its own, so that no worker of the load interferes. Nothing is asserted
//! here: the actors behave like clients and workers, and the checker judges.

mod leases;
mod plans;
mod together;

use std::time::Duration;

use crate::caller::{HeldLease, WorkerPoll};
use crate::workload::Scene;

/// The queues of the stages.
pub const QUEUES: [&str; 12] = [
    "overtaken",
    "vanished",
    "stopped",
    "used-up",
    "given-back",
    "shared",
    "cancelled",
    "postponed",
    "expired",
    "again",
    "in-turn",
    "after",
];

/// Plays all stages, side by side.
pub async fn play(scene: &Scene) {
    tokio::join!(
        leases::overtaken(scene),
        leases::vanished(scene),
        leases::asked_to_stop(scene),
        leases::used_up(scene),
        leases::given_back(scene),
        leases::side_by_side(scene),
        plans::cancelled_in_time(scene),
        plans::postponed(scene),
        plans::expired(scene),
        plans::submitted_again(scene),
        plans::pushed_later(scene),
        plans::pushed_in_vain(scene),
        together::in_turn(scene),
        together::after_others(scene),
        together::in_few_places(scene),
    );
}

/// Polls a queue for one task, and waits this long.
async fn take(scene: &Scene, worker: &str, queue: &str, wait: Duration) -> Option<HeldLease> {
    scene.caller.lease(&WorkerPoll { worker, queues: &[queue], most: 1, wait, lease_seconds: 1 }).await.pop()
}
