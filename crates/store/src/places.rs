//! Concurrency keys: how a column names one, and how many of its tasks may run. Pure; the claims
//! and the resolvers of both stores call it.
//!
//! A task has a place of its key while it is `QUEUED` or `RUNNING`. A claim counts the places that
//! are taken in an index of the held tasks, in its own transaction and under the queue's lock.
//! There is no counter, so no crash can leak a place. A due task whose key is full is *parked*: it
//! leaves the index that claims read, so claims meet each such task once. Whatever may free a place
//! leaves a note, and the resolver wakes as many tasks as places came free. A task that is woken in
//! vain is parked again: parking only saves time, the claim decides.
//!
//! Invariant: a parked task has its turn (`ordering`), and its column `has_turn` is false.

use std::collections::HashMap;
use std::hash::Hash;

use punctual_core::lane::LaneKey;
use punctual_core::task::Body;
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The most tasks that one note wakes. The rest follows with another note.
pub(crate) const WAKE_MAX: usize = 500;

/// The name of a queue's concurrency key in a column: a digest, as for ordering keys.
pub(crate) fn concurrency(tenant: &str, queue: &str, key: &str) -> Uuid {
    let mut digest = Sha256::new();
    for name in [tenant, queue] {
        digest.update(name.len().to_le_bytes());
        digest.update(name);
    }
    digest.update(key);
    let digest: [u8; 32] = digest.finalize().into();
    let (first, _) = digest.split_first_chunk::<16>().expect("invariant: 32 bytes are more than 16");
    Uuid::from_bytes(*first)
}

/// The name of the concurrency key of a task with this lane and body.
pub(crate) fn concurrency_of(lane: &LaneKey, body: &Body) -> Option<Uuid> {
    body.concurrency_key.as_deref().map(|key| concurrency(&lane.tenant, &lane.queue, key))
}

/// The free places of the keys that a claim has met.
#[derive(Debug)]
pub(crate) struct FreePlaces<K>(HashMap<K, u64>);

impl<K> Default for FreePlaces<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Eq + Hash> FreePlaces<K> {
    /// Whether the places of a key were counted.
    pub(crate) fn has(&self, key: &K) -> bool {
        self.0.contains_key(key)
    }

    /// Takes in how many of a key's places are taken.
    pub(crate) fn put(&mut self, key: K, most: u64, taken: u64) {
        self.0.insert(key, most.saturating_sub(taken));
    }

    /// Takes a place. False: the key is full.
    pub(crate) fn take(&mut self, key: &K) -> bool {
        let Some(free) = self.0.get_mut(key) else { return false };
        let is_free = *free > 0;
        *free = free.saturating_sub(1);
        is_free
    }
}

/// What the notes about a key ask for, summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeRequest {
    /// To wake so many tasks: that many places came free.
    Some(u64),
    /// To wake as many as there are free places.
    All,
}

impl WakeRequest {
    /// The request of a note.
    pub(crate) fn of_column(places: Option<i64>) -> Self {
        places.map_or(Self::All, |places| Self::Some(u64::try_from(places).unwrap_or(0)))
    }

    /// Both requests together.
    pub(crate) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Some(a), Self::Some(b)) => Self::Some(a.saturating_add(b)),
            _ => Self::All,
        }
    }

    /// How many tasks to wake if the queue allows `most` of a key. Without a limit all are woken.
    pub(crate) fn count(self, most: Option<u64>, taken: u64) -> usize {
        let Some(most) = most else { return WAKE_MAX };
        let free = most.saturating_sub(taken);
        let wanted = match self {
            Self::Some(places) => places.min(free),
            Self::All => free,
        };
        usize::try_from(wanted).unwrap_or(usize::MAX).min(WAKE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_queues_and_keys_do_not_run_into_each_other() {
        assert_eq!(concurrency("a", "b", "c"), concurrency("a", "b", "c"));
        for (tenant, queue, key) in [("ab", "", "c"), ("a", "bc", ""), ("a", "b", "C"), ("b", "a", "c")] {
            assert_ne!(concurrency(tenant, queue, key), concurrency("a", "b", "c"), "{tenant} {queue} {key}");
        }
    }

    #[test]
    fn a_claim_takes_the_places_that_are_free() {
        let mut places = FreePlaces::default();
        places.put('k', 3, 1);
        places.put('l', 1, 5);
        assert!(places.has(&'k') && !places.has(&'m'));
        assert_eq!([places.take(&'k'), places.take(&'k'), places.take(&'k')], [true, true, false]);
        assert_eq!([places.take(&'l'), places.take(&'m')], [false, false]);
    }

    #[test]
    fn as_many_are_woken_as_places_came_free() {
        let two = WakeRequest::of_column(Some(1)).and(WakeRequest::of_column(Some(1)));
        assert_eq!(two, WakeRequest::Some(2));
        assert_eq!([two.count(Some(5), 1), two.count(Some(5), 4), two.count(Some(5), 9)], [2, 1, 0]);
        let all = two.and(WakeRequest::of_column(None));
        assert_eq!([all.count(Some(5), 1), all.count(Some(9_999), 0), two.count(None, 0)], [4, WAKE_MAX, WAKE_MAX]);
    }
}
