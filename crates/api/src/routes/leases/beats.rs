//! Heartbeats that come in a flood.
//!
//! A sign of life is worth a write a few times a second, not thousands of times. Beyond that
//! a plain heartbeat is answered with what the last one was told. One that carries progress
//! or a checkpoint is always written: that is data.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use punctual_core::time::Timestamp;
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
    /// What the last one that was written was told.
    expires_at: Timestamp,
}

impl RecentBeats {
    /// What to answer a plain heartbeat without writing it, if there were too many.
    pub(super) fn answer(&self, id: TaskId, token: u64) -> Option<Timestamp> {
        let mut recent = self.0.lock();
        let beats = recent.get_mut(&(id, token)).filter(|beats| beats.since.elapsed() < WINDOW)?;
        beats.count += 1;
        (beats.count > WRITTEN).then_some(beats.expires_at)
    }

    /// A heartbeat was written.
    pub(super) fn written(&self, id: TaskId, token: u64, expires_at: Timestamp) {
        let mut recent = self.0.lock();
        if recent.len() >= MOST {
            recent.retain(|_, beats| beats.since.elapsed() < WINDOW);
        }
        if let Some(beats) = recent.get_mut(&(id, token)).filter(|beats| beats.since.elapsed() < WINDOW) {
            beats.expires_at = expires_at;
        } else if recent.len() < MOST {
            recent.insert((id, token), Beats { since: Instant::now(), count: 1, expires_at });
        }
    }

    /// The run ended, or the token holds nothing: the next heartbeat must be looked at.
    pub(super) fn forget(&self, id: TaskId, token: u64) {
        self.0.lock().remove(&(id, token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_answered_from_memory() {
        let (recent, id, at) = (RecentBeats::default(), TaskId::new(), Timestamp::from_millis(5));
        let mut written = 0;
        for _ in 0..1_000 {
            if recent.answer(id, 3).is_none() {
                written += 1;
                recent.written(id, 3, at);
            }
        }
        assert_eq!(written, WRITTEN);
        assert_eq!(recent.answer(id, 3), Some(at));
        assert_eq!(recent.answer(id, 4), None, "another token is another lease");
        tokio::time::advance(WINDOW).await;
        assert_eq!(recent.answer(id, 3), None, "a second later one is written again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_run_is_not_answered_from_memory() {
        let (recent, id) = (RecentBeats::default(), TaskId::new());
        recent.written(id, 3, Timestamp::from_millis(5));
        while recent.answer(id, 3).is_none() {}
        recent.forget(id, 3);
        assert_eq!(recent.answer(id, 3), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_is_bounded() {
        let recent = RecentBeats::default();
        for _ in 0..MOST + 10 {
            recent.written(TaskId::new(), 1, Timestamp::from_millis(5));
        }
        assert_eq!(recent.0.lock().len(), MOST);
        tokio::time::advance(WINDOW).await;
        recent.written(TaskId::new(), 1, Timestamp::from_millis(5));
        assert_eq!(recent.0.lock().len(), 1);
    }
}
