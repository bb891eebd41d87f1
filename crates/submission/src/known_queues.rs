//! The settings of queues, as this node knows them.
//!
//! A submission takes its queue's defaults from here. `QueueWatch` of the scheduler refreshes it
//! every second. Claims do not use it: the store enforces a queue's limits itself.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use punctual_core::queues::{Pause, Queue, Settings};
use punctual_core::time::Timestamp;

/// The queues that have settings or a pause. Clones share the contents.
#[derive(Clone, Debug, Default)]
pub struct KnownQueues(Arc<RwLock<HashMap<String, HashMap<String, KnownQueue>>>>);

#[derive(Debug)]
struct KnownQueue {
    settings: Arc<Settings>,
    pause: Option<Pause>,
    version: u64,
}

impl KnownQueue {
    fn is_paused(&self, now: Timestamp) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.until.is_none_or(|until| until > now))
    }
}

impl KnownQueues {
    /// The settings of a queue; none if it has none.
    pub fn settings(&self, tenant: &str, queue: &str) -> Option<Arc<Settings>> {
        let known = self.0.read();
        Some(Arc::clone(&known.get(tenant)?.get(queue)?.settings))
    }

    /// How many queues are paused at `now`, and how many limit their claims.
    pub fn restricted(&self, now: Timestamp) -> (usize, usize) {
        let known = self.0.read();
        let all = || known.values().flat_map(HashMap::values);
        let paused = all().filter(|known| known.is_paused(now));
        (paused.count(), all().filter(|known| known.settings.limits_claims()).count())
    }

    /// Takes in what was read of queues; an older version of a queue is ignored.
    pub fn learn(&self, queues: impl IntoIterator<Item = Queue>) {
        let mut known = self.0.write();
        for queue in queues {
            let of_tenant = known.entry(queue.tenant).or_default();
            if of_tenant.get(&queue.name).is_some_and(|known| known.version >= queue.version) {
                continue;
            }
            let learnt = KnownQueue { settings: Arc::new(queue.settings), pause: queue.pause, version: queue.version };
            of_tenant.insert(queue.name, learnt);
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::queues::QueueChange;

    use super::*;

    #[test]
    fn an_older_version_is_ignored() {
        let known = KnownQueues::default();
        let settings = |jitter| Settings { dispatch_jitter_millis: jitter, ..Settings::default() };
        let first = QueueChange::Put(settings(1), None).apply(Queue::unset("t", "q"));
        let second = QueueChange::Put(settings(2), None).apply(first.clone());
        known.learn([second]);
        known.learn([first]);
        assert_eq!(known.settings("t", "q").map(|settings| settings.dispatch_jitter_millis), Some(2));
        assert_eq!(known.settings("u", "q"), None);
    }

    #[test]
    fn paused_and_limited_queues_are_counted() {
        let known = KnownQueues::default();
        let pause = |until| {
            let since = Timestamp::from_millis(0);
            QueueChange::Pause(Pause { since, by: String::new(), reason: None, until })
        };
        let at = Timestamp::from_millis(100);
        known.learn([
            pause(None).apply(Queue::unset("t", "a")),
            pause(Some(at)).apply(Queue::unset("t", "b")),
            QueueChange::Put(Settings { max_concurrency: Some(1), ..Settings::default() }, None)
                .apply(Queue::unset("u", "c")),
            QueueChange::Put(Settings::default(), None).apply(Queue::unset("u", "d")),
        ]);
        assert_eq!(known.restricted(Timestamp::from_millis(99)), (2, 1));
        assert_eq!(known.restricted(at), (1, 1));
    }
}
