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
    /// The same rules for submissions by SQL. Whoever may call `punctual.enqueue` need not be on this
    /// machine, so callbacks may not go to it.
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
pub struct QueueCache(Arc<RwLock<HashMap<String, HashMap<String, CachedQueue>>>>);

#[derive(Debug)]
struct CachedQueue {
    settings: Arc<Settings>,
    pause: Option<Pause>,
    version: u64,
}

impl CachedQueue {
    fn is_paused(&self, now: Timestamp) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.until.is_none_or(|until| until > now))
    }
}

impl QueueCache {
    /// The settings of a queue; none if it has none.
    pub fn settings(&self, tenant: &str, queue: &str) -> Option<Arc<Settings>> {
        let queues = self.0.read();
        Some(Arc::clone(&queues.get(tenant)?.get(queue)?.settings))
    }

    /// How many queues are paused at `now`, and how many limit their claims.
    pub fn restricted(&self, now: Timestamp) -> (usize, usize) {
        let queues = self.0.read();
        let all = || queues.values().flat_map(HashMap::values);
        let paused = all().filter(|queue| queue.is_paused(now));
        (paused.count(), all().filter(|queue| queue.settings.limits_claims()).count())
    }

    /// Takes in queues as they were read; an older version of a queue is ignored.
    pub fn update(&self, queues: impl IntoIterator<Item = Queue>) {
        let mut cached = self.0.write();
        for queue in queues {
            let of_tenant = cached.entry(queue.tenant).or_default();
            if of_tenant.get(&queue.name).is_some_and(|cached| cached.version >= queue.version) {
                continue;
            }
            let latest = CachedQueue { settings: Arc::new(queue.settings), pause: queue.pause, version: queue.version };
            of_tenant.insert(queue.name, latest);
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::queues::QueueChange;

    use super::*;

    #[test]
    fn an_older_version_is_ignored() {
        let cache = QueueCache::default();
        let settings = |jitter| Settings { dispatch_jitter_millis: jitter, ..Settings::default() };
        let first = QueueChange::Put(settings(1), None).apply(Queue::unset("t", "q"));
        let second = QueueChange::Put(settings(2), None).apply(first.clone());
        cache.update([second]);
        cache.update([first]);
        assert_eq!(cache.settings("t", "q").map(|settings| settings.dispatch_jitter_millis), Some(2));
        assert_eq!(cache.settings("u", "q"), None);
    }

    #[test]
    fn paused_and_limited_queues_are_counted() {
        let cache = QueueCache::default();
        let pause = |until| {
            let since = Timestamp::from_millis(0);
            QueueChange::Pause(Pause { since, by: String::new(), reason: None, until })
        };
        let at = Timestamp::from_millis(100);
        cache.update([
            pause(None).apply(Queue::unset("t", "a")),
            pause(Some(at)).apply(Queue::unset("t", "b")),
            QueueChange::Put(Settings { max_concurrency: Some(1), ..Settings::default() }, None)
                .apply(Queue::unset("u", "c")),
            QueueChange::Put(Settings::default(), None).apply(Queue::unset("u", "d")),
        ]);
        assert_eq!(cache.restricted(Timestamp::from_millis(99)), (2, 1));
        assert_eq!(cache.restricted(at), (1, 1));
    }
}
