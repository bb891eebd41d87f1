//! Hints that the limits of queues may allow more: writers leave them, the dispatcher waits for
//! them.
//!
//! Hints are collected until they are asked for. They may be wrong, but none is lost in here.

use std::collections::HashSet;

use parking_lot::Mutex;
use punctual_core::queues::LimitChanges;
use tokio::sync::Notify;

/// More queues than this are not named: the hint then says that any queue may have changed.
const NAMED_QUEUES_MAX: usize = 10_000;

/// Where the writers leave hints (see the module).
#[derive(Default)]
pub(crate) struct LimitWatch {
    hints: Mutex<PendingHints>,
    added: Notify,
}

#[derive(Default)]
struct PendingHints {
    changed: bool,
    freed: HashSet<(String, String)>,
}

impl LimitWatch {
    /// A queue was set, paused or resumed.
    pub(crate) fn changed(&self) {
        self.hints.lock().changed = true;
        self.added.notify_one();
    }

    /// A place in a queue came free.
    pub(crate) fn freed(&self, tenant: &str, queue: &str) {
        let mut hints = self.hints.lock();
        if hints.freed.len() < NAMED_QUEUES_MAX {
            hints.freed.insert((tenant.to_owned(), queue.to_owned()));
        } else {
            hints.changed = true;
        }
        drop(hints);
        self.added.notify_one();
    }

    /// Waits for hints.
    pub(crate) async fn wait(&self) -> LimitChanges {
        loop {
            let PendingHints { changed, freed } = std::mem::take(&mut *self.hints.lock());
            if changed || !freed.is_empty() {
                return LimitChanges { changed, freed: freed.into_iter().collect() };
            }
            self.added.notified().await;
        }
    }
}
