//! The barrier: contenders wait there for each other, and then start together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Barrier;
use tokio::task::JoinHandle;

/// A contender that was started. Returns its answer and the span of its call.
pub type Started<T> = JoinHandle<(T, (Instant, Instant))>;

/// Sends a contender to the barrier.
pub fn start<T: Send + 'static>(
    barrier: &Arc<Barrier>,
    held_up: Duration,
    contender: impl Future<Output = T> + Send + 'static,
) -> Started<T> {
    let barrier = Arc::clone(barrier);
    tokio::spawn(async move {
        barrier.wait().await;
        hold_up(held_up).await;
        let began = Instant::now();
        let answer = contender.await;
        (answer, (began, Instant::now()))
    })
}

/// Waits for the answer of a contender.
pub async fn ended<T>(started: Started<T>) -> (T, (Instant, Instant)) {
    started.await.expect("a contender does not panic")
}

/// Waits for less than the resolution of the timer.
async fn hold_up(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        tokio::task::yield_now().await;
    }
}
