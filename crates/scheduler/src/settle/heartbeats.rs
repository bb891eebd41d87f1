//! The recent heartbeats of each lease, so that a flood of them is not written.
//!
//! The lease settler asks here before it writes a heartbeat. Beyond a few writes a second the task
//! is only read, to see that the lease still holds. A heartbeat with progress or a checkpoint is
//! always written. Invariant: the number of leases in memory is bounded.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use tokio::time::Instant;

/// The maximum number of heartbeats of one lease that are written within [`WINDOW`].
const WRITTEN_MAX: u32 = 10;
const WINDOW: Duration = Duration::from_secs(1);
/// The maximum number of leases in memory; the heartbeats of further ones are all written.
const LEASES_MAX: usize = 65_536;

/// The heartbeats of the last second.
#[derive(Default)]
pub(super) struct RecentHeartbeats(Mutex<HashMap<(TaskId, u64), HeartbeatCount>>);

struct HeartbeatCount {
    since: Instant,
    count: u32,
}

impl HeartbeatCount {
    fn is_recent(&self) -> bool {
        self.since.elapsed() < WINDOW
    }
}

impl RecentHeartbeats {
    /// Counts a heartbeat; returns whether enough of them have been written.
    pub(super) fn are_enough(&self, id: TaskId, token: u64) -> bool {
        let mut recent = self.0.lock();
        let Some(beats) = recent.get_mut(&(id, token)).filter(|beats| beats.is_recent()) else { return false };
        beats.count += 1;
        beats.count > WRITTEN_MAX
    }

    /// Notes that a heartbeat was written.
    pub(super) fn written(&self, id: TaskId, token: u64) {
        let mut recent = self.0.lock();
        if recent.len() >= LEASES_MAX {
            recent.retain(|_, beats| beats.is_recent());
        }
        let is_known = recent.get(&(id, token)).is_some_and(HeartbeatCount::is_recent);
        if !is_known && recent.len() < LEASES_MAX {
            recent.insert((id, token), HeartbeatCount { since: Instant::now(), count: 1 });
        }
    }

    /// Forgets leases whose run has ended, or whose token holds nothing.
    pub(super) fn forget(&self, leases: impl Iterator<Item = (TaskId, u64)>) {
        let mut recent = self.0.lock();
        for lease in leases {
            recent.remove(&lease);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_not_written() {
        let (recent, id) = (RecentHeartbeats::default(), TaskId::new());
        let mut written = 0;
        for _ in 0..1_000 {
            if !recent.are_enough(id, 3) {
                written += 1;
                recent.written(id, 3);
            }
        }
        assert_eq!(written, WRITTEN_MAX);
        assert!(recent.are_enough(id, 3));
        assert!(!recent.are_enough(id, 4), "another token is another lease");
        tokio::time::advance(WINDOW).await;
        assert!(!recent.are_enough(id, 3), "a second later one is written again");
    }

    #[tokio::test(start_paused = true)]
    async fn an_ended_run_is_forgotten() {
        let (recent, id) = (RecentHeartbeats::default(), TaskId::new());
        recent.written(id, 3);
        while !recent.are_enough(id, 3) {}
        recent.forget([(id, 3)].into_iter());
        assert!(!recent.are_enough(id, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_is_bounded() {
        let recent = RecentHeartbeats::default();
        for _ in 0..LEASES_MAX + 10 {
            recent.written(TaskId::new(), 1);
        }
        assert_eq!(recent.0.lock().len(), LEASES_MAX);
        tokio::time::advance(WINDOW).await;
        recent.written(TaskId::new(), 1);
        assert_eq!(recent.0.lock().len(), 1);
    }
}
