//! Heartbeats that come in a flood.
//!
//! A sign of life is worth a write a few times a second, not thousands of times. Beyond that
//! the task is read instead, to see that the lease still holds. A heartbeat that carries
//! progress or a checkpoint is always written: that is data.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use tokio::time::Instant;

/// Heartbeats of one lease that are written within [`WINDOW`].
const WRITTEN: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);
/// Leases remembered; beyond it everything is written.
const MOST: usize = 65_536;

/// The heartbeats of the last second.
#[derive(Default)]
pub struct RecentBeats(Mutex<HashMap<(TaskId, u64), Beats>>);

struct Beats {
    since: Instant,
    count: u32,
}

impl RecentBeats {
    /// Counts a plain heartbeat; whether enough of them have been written.
    pub(super) fn are_enough(&self, id: TaskId, token: u64) -> bool {
        let mut recent = self.0.lock();
        let Some(beats) = recent.get_mut(&(id, token)).filter(|beats| beats.since.elapsed() < WINDOW) else {
            return false;
        };
        beats.count += 1;
        beats.count > WRITTEN
    }

    /// A heartbeat was written.
    pub(super) fn written(&self, id: TaskId, token: u64) {
        let mut recent = self.0.lock();
        if recent.len() >= MOST {
            recent.retain(|_, beats| beats.since.elapsed() < WINDOW);
        }
        let known = recent.get(&(id, token)).is_some_and(|beats| beats.since.elapsed() < WINDOW);
        if !known && recent.len() < MOST {
            recent.insert((id, token), Beats { since: Instant::now(), count: 1 });
        }
    }

    /// The run ended, or the token holds nothing.
    pub(super) fn forget(&self, id: TaskId, token: u64) {
        self.0.lock().remove(&(id, token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_not_written() {
        let (recent, id) = (RecentBeats::default(), TaskId::new());
        let mut written = 0;
        for _ in 0..1_000 {
            if !recent.are_enough(id, 3) {
                written += 1;
                recent.written(id, 3);
            }
        }
        assert_eq!(written, WRITTEN);
        assert!(recent.are_enough(id, 3));
        assert!(!recent.are_enough(id, 4), "another token is another lease");
        tokio::time::advance(WINDOW).await;
        assert!(!recent.are_enough(id, 3), "a second later one is written again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_run_is_forgotten() {
        let (recent, id) = (RecentBeats::default(), TaskId::new());
        recent.written(id, 3);
        while !recent.are_enough(id, 3) {}
        recent.forget(id, 3);
        assert!(!recent.are_enough(id, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_is_bounded() {
        let recent = RecentBeats::default();
        for _ in 0..MOST + 10 {
            recent.written(TaskId::new(), 1);
        }
        assert_eq!(recent.0.lock().len(), MOST);
        tokio::time::advance(WINDOW).await;
        recent.written(TaskId::new(), 1);
        assert_eq!(recent.0.lock().len(), 1);
    }
}
