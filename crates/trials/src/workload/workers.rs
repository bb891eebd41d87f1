//! Pull workers: most complete their tasks, some fail, some are slow, some fall silent.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::task::JoinSet;

use super::{QUEUE, Scene};
use crate::caller::{Caller, HeldLease, WorkerPoll};
use crate::history::{CallAnswer, WorkerReport};
use crate::orders::NARROW;

/// How long a worker waits for tasks.
const WAIT: Duration = Duration::from_millis(500);
/// The longest time after the end of its lease until a late worker comes back: before or after the
/// reaper has taken the task back.
const LATE: Duration = Duration::from_millis(1_200);

/// Works until it is dropped.
pub async fn worker(scene: Scene, name: String, mut dice: StdRng) {
    let caller = scene.caller.clone();
    let mut late = JoinSet::new();
    loop {
        let most = dice.random_range(1..10);
        let ask = WorkerPoll {
            worker: &name,
            queues: &[QUEUE, NARROW],
            most,
            wait: WAIT,
            lease_seconds: dice.random_range(1..3),
        };
        let mut done = Vec::new();
        for held in caller.lease(&ask).await {
            match dice.random_range(0..100) {
                0..75 => done.push((held, WorkerReport::Completed)),
                75..82 => done.push((held, WorkerReport::Failed)),
                82..84 => done.push((held, WorkerReport::FailedForGood)),
                84..87 => done.push((held, WorkerReport::Released)),
                87..92 => {
                    caller.settle(&held, WorkerReport::Heartbeat).await;
                    done.push((held, WorkerReport::Completed));
                }
                92..98 => {
                    let after = LATE.mul_f64(dice.random());
                    late.spawn(come_back_late(scene.clone(), held, after));
                }
                _ => {}
            }
        }
        if !done.is_empty() {
            settle_all(&caller, done).await;
        }
        while late.try_join_next().is_some() {}
    }
}

/// Completes every task that is left in some queues, until it is dropped.
pub async fn sweeper(caller: Caller, queues: &'static [&'static str]) {
    let ask = WorkerPoll { worker: "sweeper", queues, most: 10, wait: WAIT, lease_seconds: 2 };
    loop {
        let done: Vec<_> = caller.lease(&ask).await.into_iter().map(|held| (held, WorkerReport::Completed)).collect();
        if !done.is_empty() {
            settle_all(&caller, done).await;
        }
    }
}

/// Settles many at once, and the unanswered ones one by one until each is answered.
async fn settle_all(caller: &Caller, done: Vec<(HeldLease, WorkerReport)>) {
    let answers = caller.settle_all(&done).await;
    for ((held, report), answer) in done.iter().zip(answers) {
        if matches!(answer, CallAnswer::Unknown) {
            caller.settle_surely(held, *report).await;
        }
    }
}

/// Sleeps through the end of the lease, then acts as if nothing had happened.
async fn come_back_late(scene: Scene, held: HeldLease, after: Duration) {
    let until = held.expires_at.duration_from(scene.in_millis(0));
    tokio::time::sleep(until + after).await;
    scene.caller.settle(&held, WorkerReport::Heartbeat).await;
    scene.caller.settle_surely(&held, WorkerReport::Completed).await;
}
