//! Hints from writers to the dispatcher: "this lane has a task due at that instant".
//!
//! Writers add them and the dispatcher takes them. There is at most one per lane, so they need
//! little memory under load. Invariant: losing all of them only costs punctuality, since the sweep
//! finds every lane.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use punctual_core::lane::{Lane, LaneId};
use punctual_core::time::Timestamp;
use tokio::sync::Notify;

/// The earliest hinted instant of each lane since the dispatcher took them last.
#[derive(Debug, Default)]
pub struct Hints {
    earliest: Mutex<HashMap<LaneId, (Arc<Lane>, Timestamp)>>,
    sweep_requested: AtomicBool,
    freed: Mutex<FreedQueues>,
    added: Notify,
}

/// Queues whose limits may have changed.
#[derive(Debug, Default)]
struct FreedQueues {
    all: bool,
    queues: HashSet<(String, String)>,
}

impl Hints {
    /// Adds hints for tasks that wait now.
    pub fn add<'a>(&self, waiting: impl IntoIterator<Item = (&'a Arc<Lane>, Timestamp)>) {
        let mut earliest = self.earliest.lock();
        for (lane, due_at) in waiting {
            earliest
                .entry(lane.id)
                .and_modify(|(_, known)| *known = due_at.min(*known))
                .or_insert_with(|| (Arc::clone(lane), due_at));
        }
        let any = !earliest.is_empty();
        drop(earliest);
        if any {
            self.added.notify_one();
        }
    }

    /// Has the dispatcher sweep: any lane may have a task.
    pub fn request_sweep(&self) {
        self.sweep_requested.store(true, Ordering::Relaxed);
        self.added.notify_one();
    }

    /// Whether a sweep was requested since the last call.
    pub fn take_sweep_request(&self) -> bool {
        self.sweep_requested.swap(false, Ordering::Relaxed)
    }

    /// Notifies the dispatcher that a queue may let tasks through again.
    pub fn free(&self, tenant: &str, queue: &str) {
        self.freed.lock().queues.insert((tenant.to_owned(), queue.to_owned()));
        self.added.notify_one();
    }

    /// Notifies the dispatcher that all queues may let tasks through again.
    pub fn free_all(&self) {
        self.freed.lock().all = true;
        self.added.notify_one();
    }

    /// Whether all queues may let tasks through again since the last call, and which ones may.
    pub fn take_freed(&self) -> (bool, HashSet<(String, String)>) {
        let FreedQueues { all, queues } = std::mem::take(&mut *self.freed.lock());
        (all, queues)
    }

    /// Wakes the dispatcher up.
    pub fn wake(&self) {
        self.added.notify_one();
    }

    /// The hints since the last call.
    pub fn take(&self) -> Vec<(Arc<Lane>, Timestamp)> {
        std::mem::take(&mut *self.earliest.lock()).into_values().collect()
    }

    /// Returns once something was added.
    pub async fn wait(&self) {
        self.added.notified().await;
    }
}
