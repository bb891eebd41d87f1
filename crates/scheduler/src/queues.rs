//! What queues are set to, as this node knows it, and the loop that keeps it up to date.
//!
//! Whoever submits asks [`KnownQueues`] for the defaults of a queue; the gates of claims are in
//! the store and do not go by this. It is read again every second, and at once when somebody
//! tells of a change; those who wait because of a queue are told too.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use punctual_core::queues::{Pause, Queue, Queues, Settings};
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::hints::Hints;

/// How often settings are read again.
const INTERVAL: Duration = Duration::from_secs(1);

/// The queues that are set or paused. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct KnownQueues(Arc<RwLock<HashMap<String, HashMap<String, Known>>>>);

#[derive(Debug)]
struct Known {
    settings: Arc<Settings>,
    pause: Option<Pause>,
    version: u64,
}

impl Known {
    fn is_paused(&self, now: Timestamp) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.until.is_none_or(|until| until > now))
    }
}

impl KnownQueues {
    /// What a queue is set to; none: nothing.
    pub fn settings(&self, tenant: &str, queue: &str) -> Option<Arc<Settings>> {
        let known = self.0.read();
        Some(Arc::clone(&known.get(tenant)?.get(queue)?.settings))
    }

    /// How many are paused at `now`, and how many have a limit on what runs.
    pub fn restricted(&self, now: Timestamp) -> (usize, usize) {
        let known = self.0.read();
        let all = || known.values().flat_map(HashMap::values);
        let paused = all().filter(|known| known.is_paused(now));
        (paused.count(), all().filter(|known| known.settings.limits_claims()).count())
    }

    /// Queues are set so.
    pub fn learn(&self, queues: impl IntoIterator<Item = Queue>) {
        let mut known = self.0.write();
        for queue in queues {
            let of_tenant = known.entry(queue.tenant).or_default();
            if of_tenant.get(&queue.name).is_some_and(|known| known.version >= queue.version) {
                continue;
            }
            let learnt = Known { settings: Arc::new(queue.settings), pause: queue.pause, version: queue.version };
            of_tenant.insert(queue.name, learnt);
        }
    }
}

/// Keeps a [`KnownQueues`] up to date (see the module).
pub struct QueueWatch {
    queues: Arc<dyn Queues>,
    known: KnownQueues,
    hints: Arc<Hints>,
}

impl QueueWatch {
    /// From `queues` to `known`, and to those who take `hints`.
    pub fn new(queues: Arc<dyn Queues>, known: KnownQueues, hints: Arc<Hints>) -> Self {
        Self { queues, known, hints }
    }

    /// Works until told to stop.
    pub async fn run(self, stop: CancellationToken) {
        let mut failures = 0_u32;
        let mut next = tokio::time::Instant::now();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                stirred = self.queues.stirred() => {
                    for (tenant, queue) in &stirred.freed {
                        self.hints.free(tenant, queue);
                    }
                    if !stirred.changed {
                        continue;
                    }
                    // Whoever was held back need not wait for the settings: the store goes by them already.
                    self.hints.free_all();
                }
                () = tokio::time::sleep_until(next) => {}
            }
            match self.run_once().await {
                Ok(()) => failures = 0,
                Err(error) => {
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(error = %error, "the settings of the queues could not be read; the last are used");
                    }
                }
            }
            next = tokio::time::Instant::now() + INTERVAL;
        }
    }

    /// Reads what queues are set to.
    pub async fn run_once(&self) -> Result<(), StoreError> {
        self.known.learn(self.queues.special_queues().await?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::queues::Change;

    use super::*;

    #[test]
    fn what_is_older_is_not_learnt() {
        let known = KnownQueues::default();
        let settings = |jitter| Settings { dispatch_jitter_millis: jitter, ..Settings::default() };
        let first = Change::Put(settings(1), None).apply(Queue::unset("t", "q"));
        let second = Change::Put(settings(2), None).apply(first.clone());
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
            Change::Pause(Pause { since, by: String::new(), reason: None, until })
        };
        let at = Timestamp::from_millis(100);
        known.learn([
            pause(None).apply(Queue::unset("t", "a")),
            pause(Some(at)).apply(Queue::unset("t", "b")),
            Change::Put(Settings { max_concurrency: Some(1), ..Settings::default() }, None)
                .apply(Queue::unset("u", "c")),
            Change::Put(Settings::default(), None).apply(Queue::unset("u", "d")),
        ]);
        assert_eq!(known.restricted(Timestamp::from_millis(99)), (2, 1));
        assert_eq!(known.restricted(at), (1, 1));
    }
}
