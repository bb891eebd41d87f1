//! The memory of answers that their clients have yet to read.
//!
//! An answer is built whole, and stays in memory until its client has read it. Clients decide how
//! long that takes, so [`crate::admission`] gives a request that may have a large answer no permit
//! until there is room for one. [`crate::middleware`] puts the true size in place of the estimate,
//! and the server keeps the [`UnreadBytes`] with the answer until its last byte has left.
//!
//! Invariant: what is counted here is what is held, and dropping the guard gives it back.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// One tenant takes at most this fraction of the bytes: its slow readers must not keep the answers
/// of others away.
const TENANT_SHARE: usize = 2;

/// The unread answers to one kind of request.
#[derive(Debug)]
pub struct UnreadAnswers {
    limit: usize,
    held: Mutex<HeldBytes>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct HeldBytes {
    all: usize,
    of_tenants: HashMap<String, usize>,
}

impl UnreadAnswers {
    /// Up to about `limit` bytes: the last answer that begins within it may exceed it.
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: Mutex::default(), freed: Notify::new() })
    }

    /// Counts `bytes` for an answer to `tenant`, whether there is room or not.
    pub fn hold(self: &Arc<Self>, tenant: &str, bytes: usize) -> UnreadBytes {
        self.held.lock().add(tenant, bytes);
        UnreadBytes { answers: Arc::clone(self), tenant: tenant.to_owned(), bytes }
    }

    /// The same if there is room.
    pub fn try_hold(self: &Arc<Self>, tenant: &str, bytes: usize) -> Option<UnreadBytes> {
        let mut held = self.held.lock();
        if !held.has_room(tenant, self.limit) {
            return None;
        }
        held.add(tenant, bytes);
        Some(UnreadBytes { answers: Arc::clone(self), tenant: tenant.to_owned(), bytes })
    }

    /// Waits until there is room for an answer to `tenant`; false if there is none by then.
    pub async fn has_room_by(&self, tenant: &str, until: Instant) -> bool {
        loop {
            let freed = self.freed.notified();
            if self.held.lock().has_room(tenant, self.limit) {
                return true;
            }
            if timeout_at(until, freed).await.is_err() {
                return false;
            }
        }
    }
}

impl HeldBytes {
    fn has_room(&self, tenant: &str, limit: usize) -> bool {
        let of_tenant = self.of_tenants.get(tenant).copied().unwrap_or(0);
        self.all < limit && of_tenant < limit.div_ceil(TENANT_SHARE)
    }

    fn add(&mut self, tenant: &str, bytes: usize) {
        self.all += bytes;
        match self.of_tenants.get_mut(tenant) {
            Some(held) => *held += bytes,
            None => drop(self.of_tenants.insert(tenant.to_owned(), bytes)),
        }
    }

    fn remove(&mut self, tenant: &str, bytes: usize) {
        self.all -= bytes;
        if let Some(held) = self.of_tenants.get_mut(tenant) {
            *held -= bytes;
            if *held == 0 {
                self.of_tenants.remove(tenant);
            }
        }
    }
}

/// The bytes of one answer, counted until this is dropped.
#[derive(Debug)]
pub struct UnreadBytes {
    answers: Arc<UnreadAnswers>,
    tenant: String,
    bytes: usize,
}

impl UnreadBytes {
    /// Counts `bytes` from now on.
    #[must_use]
    pub fn resized(mut self, bytes: usize) -> Self {
        let mut held = self.answers.held.lock();
        held.add(&self.tenant, bytes);
        held.remove(&self.tenant, self.bytes);
        drop(held);
        if bytes < self.bytes {
            self.answers.freed.notify_waiters();
        }
        self.bytes = bytes;
        self
    }
}

impl Drop for UnreadBytes {
    fn drop(&mut self) {
        self.answers.held.lock().remove(&self.tenant, self.bytes);
        self.answers.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_tenant_leaves_room_for_another() {
        let answers = UnreadAnswers::new(100);
        let slow = answers.try_hold("slow", 60).unwrap();
        assert!(answers.try_hold("slow", 1).is_none(), "it has its half");
        let other = answers.try_hold("other", 40).unwrap();
        assert!(answers.try_hold("third", 1).is_none(), "nothing is left");
        drop(other);
        let other = answers.try_hold("other", 10).unwrap();
        drop((slow.resized(10), other));
        assert!(answers.held.lock().of_tenants.is_empty());
        assert_eq!(answers.held.lock().all, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_is_woken_by_room() {
        let answers = UnreadAnswers::new(100);
        let large = answers.hold("a", 200);
        let until = Instant::now() + Duration::from_secs(4);
        assert!(!answers.has_room_by("b", until).await);
        assert_eq!(Instant::now(), until);
        let later = until + Duration::from_secs(4);
        let (has_room, ()) = tokio::join!(answers.has_room_by("b", later), async {
            tokio::task::yield_now().await;
            drop(large.resized(99));
        });
        assert!(has_room && Instant::now() < later);
    }
}
