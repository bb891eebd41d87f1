//! The limits and defaults that submissions are checked against.
//!
//! The binary fills them in from the configuration and gives a clone to each caller.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use punctual_core::networks::AllowedNetworks;
use punctual_core::queues::{Pause, Queue, Settings};
use punctual_core::retry::RetryPolicy;
use punctual_core::time::Timestamp;

/// The limits and defaults of one node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SubmissionRules {
    /// The maximum length of a task's payload in bytes.
    pub payload_bytes: usize,
    /// The retry policy of a task that does not give one, field by field.
    pub retry_policy: RetryPolicy,
    /// The timeout of a run whose task does not give one.
    pub timeout_millis: u64,
    /// The settings of queues, as far as this node knows them.
    pub queues: QueueCache,
    /// The networks that callbacks may go to.
    pub networks: AllowedNetworks,
}

impl SubmissionRules {
    /// The same rules for submissions by SQL. A role that may call `punctual.enqueue` can be on
    /// another machine, so callbacks may not go to this one.
    #[must_use]
    pub fn of_inbox(self) -> Self {
        Self { networks: self.networks.without_this_machine(), ..self }
    }

    /// The same rules without a limit on the payload, for stored submissions. They were checked
    /// against the limit of their time, and a lower limit must not reject them.
    #[must_use]
    pub fn without_payload_limit(self) -> Self {
        Self { payload_bytes: usize::MAX, ..self }
    }
}

impl Default for SubmissionRules {
    fn default() -> Self {
        Self {
            payload_bytes: 256 * 1024,
            retry_policy: RetryPolicy::default(),
            timeout_millis: 300_000,
            queues: QueueCache::default(),
            networks: AllowedNetworks::none(),
        }
    }
}

/// The queues that have settings or a pause, as this node knows them. Clones share the contents.
///
/// A submission takes its queue's defaults from here. `QueueWatch` of the scheduler updates it
/// every second. Claims do not use it: the store enforces a queue's limits itself.
#[derive(Clone, Debug, Default)]
pub struct QueueCache(Arc<RwLock<CachedQueues>>);

#[derive(Debug, Default)]
struct CachedQueues {
    /// The queues that are set or paused, by tenant and name.
    queues: HashMap<String, HashMap<String, CachedQueue>>,
    /// Every change up to this number was read.
    read_to: u64,
}

#[derive(Debug)]
struct CachedQueue {
    settings: Arc<Settings>,
    pause: Option<Pause>,
    change_number: u64,
}

impl CachedQueues {
    /// Takes in a queue, unless a later change of it is known. A removed queue is not kept.
    fn put(&mut self, queue: Queue) {
        let known = self.queues.get(&queue.tenant).and_then(|queues| queues.get(&queue.name));
        if known.is_some_and(|known| known.change_number > queue.change_number) {
            return;
        }
        if queue.removed {
            if let Some(queues) = self.queues.get_mut(&queue.tenant) {
                queues.remove(&queue.name);
                if queues.is_empty() {
                    self.queues.remove(&queue.tenant);
                }
            }
            return;
        }
        let Queue { settings, pause, change_number, .. } = queue;
        let latest = CachedQueue { settings: Arc::new(settings), pause, change_number };
        self.queues.entry(queue.tenant).or_default().insert(queue.name, latest);
    }
}

impl CachedQueue {
    fn is_paused(&self, now: Timestamp) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.until.is_none_or(|until| until > now))
    }
}

impl QueueCache {
    /// The settings of a queue; none if it has none.
    pub fn settings(&self, tenant: &str, queue: &str) -> Option<Arc<Settings>> {
        let cached = self.0.read();
        Some(Arc::clone(&cached.queues.get(tenant)?.get(queue)?.settings))
    }

    /// How many queues are paused at `now`, and how many limit their claims.
    pub fn restricted(&self, now: Timestamp) -> (usize, usize) {
        let cached = self.0.read();
        let all = || cached.queues.values().flat_map(HashMap::values);
        let paused = all().filter(|queue| queue.is_paused(now));
        (paused.count(), all().filter(|queue| queue.settings.limits_claims()).count())
    }

    /// The number up to which every change was read.
    pub fn read_to(&self) -> u64 {
        self.0.read().read_to
    }

    /// Takes in the queues that changed after a number, as the store has them. From zero on they
    /// are all there are; a queue that was changed on this node meanwhile stays.
    pub fn take_changes(&self, after: u64, changed: Vec<Queue>) {
        let mut cached = self.0.write();
        let last = changed.iter().map(|queue| queue.change_number).fold(cached.read_to, u64::max);
        if after == 0 {
            for queues in cached.queues.values_mut() {
                queues.retain(|_, queue| queue.change_number > last);
            }
            cached.queues.retain(|_, queues| !queues.is_empty());
        }
        for queue in changed {
            cached.put(queue);
        }
        cached.read_to = last;
    }

    /// Takes in a queue that was changed on this node, unless a later change was read.
    pub fn update(&self, queue: Queue) {
        let mut cached = self.0.write();
        if queue.change_number > cached.read_to {
            cached.put(queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::queues::QueueChange;

    use super::*;

    fn changed(number: u64, change: QueueChange) -> Queue {
        Queue { change_number: number, ..change.apply(Queue::unset("t", "q")) }
    }

    fn put(number: u64) -> Queue {
        let settings = Settings { dispatch_jitter_millis: number, ..Settings::default() };
        changed(number, QueueChange::Put(settings, None))
    }

    fn jitter(cache: &QueueCache) -> Option<u64> {
        cache.settings("t", "q").map(|settings| settings.dispatch_jitter_millis)
    }

    #[test]
    fn an_older_change_is_ignored() {
        let cache = QueueCache::default();
        cache.update(put(2));
        cache.update(put(1));
        assert_eq!((jitter(&cache), cache.read_to()), (Some(2), 0));
        cache.take_changes(0, vec![put(1)]);
        assert_eq!((jitter(&cache), cache.read_to()), (Some(2), 1), "the change here is later than the read");
        cache.take_changes(1, vec![put(3)]);
        cache.update(put(2));
        assert_eq!((jitter(&cache), cache.read_to()), (Some(3), 3));
        assert_eq!(cache.settings("u", "q"), None);
    }

    #[test]
    fn a_removed_queue_leaves_nothing() {
        let cache = QueueCache::default();
        cache.take_changes(0, vec![put(1)]);
        cache.take_changes(1, vec![changed(2, QueueChange::Remove)]);
        assert!(cache.0.read().queues.is_empty());
        cache.update(put(1));
        assert_eq!(jitter(&cache), None, "the removal was read, so an older change cannot come back");
        cache.update(put(3));
        cache.take_changes(0, Vec::new());
        assert_eq!(jitter(&cache), Some(3));
        cache.take_changes(0, vec![Queue { name: "other".into(), ..put(4) }]);
        assert_eq!(jitter(&cache), None, "a whole read has every queue there is");
    }
}
