//! Pull workers: most are diligent, some fail, some are slow, some are never heard of again.

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;
use tokio::task::JoinSet;

use super::{QUEUE, Scene};
use crate::caller::{Ask, Caller, Held};
use crate::history::{Answer, Said};
use crate::orders::NARROW;

/// How long a worker waits for tasks.
const WAIT: Duration = Duration::from_millis(500);
/// How long after the end of its lease a late worker comes back: on both sides of the moment it is taken back.
const LATE: Duration = Duration::from_millis(1_200);

/// Works until it is dropped.
pub async fn worker(scene: Scene, name: String, mut dice: StdRng) {
    let caller = scene.caller.clone();
    let mut late = JoinSet::new();
    loop {
        let most = dice.random_range(1..10);
        let ask =
            Ask { worker: &name, queues: &[QUEUE, NARROW], most, wait: WAIT, lease_seconds: dice.random_range(1..3) };
        let mut done = Vec::new();
        for held in caller.lease(&ask).await {
            match dice.random_range(0..100) {
                0..75 => done.push((held, Said::Completed)),
                75..82 => done.push((held, Said::Failed)),
                82..84 => done.push((held, Said::FailedForGood)),
                84..87 => done.push((held, Said::Released)),
                87..92 => {
                    caller.settle(&held, Said::Heartbeat).await;
                    done.push((held, Said::Completed));
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

/// Completes whatever is left in some queues, until it is dropped.
pub async fn sweeper(caller: Caller, queues: &'static [&'static str]) {
    let ask = Ask { worker: "sweeper", queues, most: 10, wait: WAIT, lease_seconds: 2 };
    loop {
        let done: Vec<_> = caller.lease(&ask).await.into_iter().map(|held| (held, Said::Completed)).collect();
        if !done.is_empty() {
            settle_all(&caller, done).await;
        }
    }
}

/// Settles many at once, and what was not answered one by one until it is.
async fn settle_all(caller: &Caller, done: Vec<(Held, Said)>) {
    let answers = caller.settle_all(&done).await;
    for ((held, said), answer) in done.iter().zip(answers) {
        if matches!(answer, Answer::Unknown) {
            caller.settle_surely(held, *said).await;
        }
    }
}

/// Sleeps through the end of the lease, then acts as if nothing were the matter.
async fn come_back_late(scene: Scene, held: Held, after: Duration) {
    let until = held.expires_at.duration_from(scene.in_millis(0));
    tokio::time::sleep(until + after).await;
    scene.caller.settle(&held, Said::Heartbeat).await;
    scene.caller.settle_surely(&held, Said::Completed).await;
}
