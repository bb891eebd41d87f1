//! Hints from writers to the dispatcher: "this lane has a task due then".
//!
//! Hints are coalesced, one for a lane at the most, so they cost no memory under load.
//! Losing them all would cost punctuality and nothing else: the sweep finds every lane.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use punctual_core::lane::{Lane, LaneId};
use punctual_core::time::Timestamp;
use tokio::sync::Notify;

/// The earliest due instant hinted for each lane since the dispatcher looked last.
#[derive(Debug, Default)]
pub struct Hints {
    earliest: Mutex<HashMap<LaneId, (Arc<Lane>, Timestamp)>>,
    everywhere: AtomicBool,
    freed: Mutex<Freed>,
    added: Notify,
}

/// Queues that may let through what they did not.
#[derive(Debug, Default)]
struct Freed {
    all: bool,
    queues: HashSet<(String, String)>,
}

impl Hints {
    /// Tells the dispatcher of tasks that wait now.
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

    /// Tells the dispatcher that tasks may wait anywhere.
    pub fn look_everywhere(&self) {
        self.everywhere.store(true, Ordering::Relaxed);
        self.added.notify_one();
    }

    /// Whether tasks may wait anywhere, since the last call.
    pub fn take_everywhere(&self) -> bool {
        self.everywhere.swap(false, Ordering::Relaxed)
    }

    /// Tells the dispatcher that a queue may let something through again.
    pub fn free(&self, tenant: &str, queue: &str) {
        self.freed.lock().queues.insert((tenant.to_owned(), queue.to_owned()));
        self.added.notify_one();
    }

    /// Tells the dispatcher that any queue may.
    pub fn free_all(&self) {
        self.freed.lock().all = true;
        self.added.notify_one();
    }

    /// Whether any queue may, and which ones may, since the last call.
    pub fn take_freed(&self) -> (bool, HashSet<(String, String)>) {
        let Freed { all, queues } = std::mem::take(&mut *self.freed.lock());
        (all, queues)
    }

    /// Has the dispatcher look around.
    pub fn nudge(&self) {
        self.added.notify_one();
    }

    /// What was hinted since the last call.
    pub fn take(&self) -> Vec<(Arc<Lane>, Timestamp)> {
        std::mem::take(&mut *self.earliest.lock()).into_values().collect()
    }

    /// Returns once something was added.
    pub async fn wait(&self) {
        self.added.notified().await;
    }
}
