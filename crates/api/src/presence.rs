//! The presence of pull workers: those seen since the last flush, and what they polled for.
//!
//! Every lease call is recorded, and so is every settlement or heartbeat whose worker is known
//! without a read. Presences stay in memory; [`PresenceFlusher`] writes them to the registry in one
//! batch, so that asking for work costs no write of its own: within a second where other nodes read
//! them, and every few seconds for a crowd of workers. A busy worker that makes no
//! call is known by the leases it holds.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::registry::WorkerPresence;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use punctual_scheduler::polls::PollFilter;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::state::Api;

/// The maximum number of workers kept between two flushes. Beyond it a new worker is not listed
/// until its next call; it still gets tasks.
const WORKERS_MAX: usize = 50_000;
/// The maximum number of leases, of all tenants, to read in search of busy workers.
pub(crate) const LEASES_MAX: usize = 10_000;
/// How often the presences of a crowd are written, and how many workers are one.
const CROWD_INTERVAL: Duration = Duration::from_secs(5);
const CROWD: usize = 1_000;

/// The workers seen since the last flush, and those that a flush is writing.
#[derive(Default)]
pub struct UnflushedPresence(Mutex<UnflushedWorkers>);

/// Workers by tenant and name.
type Workers = HashMap<String, BTreeMap<String, WorkerPresence>>;

#[derive(Default)]
struct UnflushedWorkers {
    /// How many workers are in `seen` and in `in_writing`; those in both count twice.
    count: usize,
    seen: Workers,
    /// The workers of the flush under way, shown until the registry has them.
    in_writing: Workers,
}

impl UnflushedPresence {
    /// Records that `worker` polled for `wants` at `now`.
    pub fn record(&self, tenant: &str, worker: &str, wants: &PollFilter, now: Timestamp) {
        self.merge(tenant, worker, Some(wants), now);
    }

    /// Records that `worker` made another call at `now`.
    pub fn record_alive(&self, tenant: &str, worker: &str, now: Timestamp) {
        self.merge(tenant, worker, None, now);
    }

    fn merge(&self, tenant: &str, worker: &str, wants: Option<&PollFilter>, now: Timestamp) {
        let mut unflushed = self.0.lock();
        if let Some(known) = unflushed.seen.get_mut(tenant).and_then(|workers| workers.get_mut(worker)) {
            known.last_seen_at = known.last_seen_at.max(now);
            let same = match wants {
                None => true,
                Some(PollFilter::Queues(queues)) => known.queues == *queues && known.kinds.is_empty(),
                Some(PollFilter::Kinds(kinds)) => known.kinds == *kinds && known.queues.is_empty(),
            };
            if !same {
                (known.queues, known.kinds) = asked_for(wants);
            }
            return;
        }
        if unflushed.count >= WORKERS_MAX {
            return;
        }
        let (queues, kinds) = asked_for(wants);
        let presence = WorkerPresence {
            tenant: tenant.to_owned(),
            name: worker.to_owned(),
            queues,
            kinds,
            first_seen_at: now,
            last_seen_at: now,
        };
        unflushed.count += 1;
        unflushed.seen.entry(tenant.to_owned()).or_default().insert(worker.to_owned(), presence);
    }

    /// The workers of `tenant` by name, strictly after `after`, at most `limit`.
    pub fn of(&self, tenant: &str, after: Option<&str>, limit: usize) -> Vec<WorkerPresence> {
        let unflushed = self.0.lock();
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let page = |workers: &Workers| -> BTreeMap<String, WorkerPresence> {
            let found = workers.get(tenant).into_iter().flat_map(|workers| workers.range::<str, _>(range));
            found.take(limit).map(|(name, presence)| (name.clone(), presence.clone())).collect()
        };
        let mut workers = page(&unflushed.in_writing);
        for newer in page(&unflushed.seen).into_values() {
            merge(&mut workers, newer);
        }
        workers.into_values().take(limit).collect()
    }

    /// Whether it should be written, if it was last written this long ago.
    fn is_due(&self, flushed: Duration) -> bool {
        flushed >= CROWD_INTERVAL || self.0.lock().count <= CROWD
    }

    /// Begins a flush: the workers to write. What an earlier flush did not finish is among them.
    fn begin_flush(&self) -> Vec<WorkerPresence> {
        let mut unflushed = self.0.lock();
        unflushed.put_back();
        unflushed.in_writing = std::mem::take(&mut unflushed.seen);
        unflushed.in_writing.values().flat_map(BTreeMap::values).cloned().collect()
    }

    /// Ends a flush: the registry has its workers.
    fn end_flush(&self) {
        let mut unflushed = self.0.lock();
        let written = std::mem::take(&mut unflushed.in_writing);
        unflushed.count -= written.values().map(BTreeMap::len).sum::<usize>();
    }
}

impl UnflushedWorkers {
    /// Puts back the workers of a flush that did not finish, under those seen since.
    fn put_back(&mut self) {
        for (tenant, workers) in std::mem::take(&mut self.in_writing) {
            let seen = self.seen.entry(tenant).or_default();
            for (name, presence) in workers {
                if let Some(newer) = seen.get_mut(&name) {
                    *newer = newer.clone().following(&presence);
                    self.count -= 1;
                } else {
                    seen.insert(name, presence);
                }
            }
        }
    }
}

/// Adds a newer presence to those known: the older one knows when the worker was first seen.
pub(crate) fn merge(workers: &mut BTreeMap<String, WorkerPresence>, newer: WorkerPresence) {
    let merged = match workers.get(&newer.name) {
        Some(older) => newer.following(older),
        None => newer,
    };
    workers.insert(merged.name.clone(), merged);
}

fn asked_for(wants: Option<&PollFilter>) -> (Vec<String>, Vec<String>) {
    match wants {
        None => (Vec::new(), Vec::new()),
        Some(PollFilter::Queues(queues)) => (queues.clone(), Vec::new()),
        Some(PollFilter::Kinds(kinds)) => (Vec::new(), kinds.clone()),
    }
}

/// The loop that writes presences to the registry.
pub struct PresenceFlusher {
    api: Api,
}

impl PresenceFlusher {
    /// Writes the presences of `api`.
    pub fn new(api: Api) -> Self {
        Self { api }
    }

    /// Writes at every interval until `shutdown`, and once more then.
    pub async fn run(self, shutdown: CancellationToken) {
        let (mut failing, mut flushed_at) = (false, Instant::now());
        loop {
            let ending = tokio::select! {
                () = shutdown.cancelled() => true,
                () = tokio::time::sleep(self.api.config.presence_interval) => false,
            };
            if !ending && !self.api.presence.is_due(flushed_at.elapsed()) {
                continue;
            }
            flushed_at = Instant::now();
            match self.run_once().await {
                Ok(_) => failing = false,
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(%error, "cannot write the presence of workers; retrying");
                }
                Err(_) => {}
            }
            if ending {
                return;
            }
        }
    }

    /// Writes the presences since the last pass. Returns how many workers they are of.
    pub async fn run_once(&self) -> Result<usize, StoreError> {
        let presences = self.api.presence.begin_flush();
        let count = presences.len();
        if count > 0 {
            self.api.database.record_workers(presences).await?;
            self.api.presence.end_flush();
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn queues(names: &[&str]) -> PollFilter {
        PollFilter::Queues(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_worker_is_kept_once_with_its_last_request() {
        let presence = UnflushedPresence::default();
        presence.record("t", "w", &queues(&["a"]), at(1));
        presence.record("t", "w", &PollFilter::Kinds(vec!["mail".into()]), at(3));
        presence.record("t", "w", &PollFilter::Kinds(vec!["mail".into()]), at(2));
        presence.record("u", "w", &queues(&["b"]), at(2));
        let seen = presence.of("t", None, 10);
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].first_seen_at, seen[0].last_seen_at), (at(1), at(3)));
        assert_eq!((seen[0].queues.len(), seen[0].kinds.as_slice()), (0, ["mail".to_owned()].as_slice()));
    }

    #[test]
    fn a_sign_of_life_keeps_the_request() {
        let presence = UnflushedPresence::default();
        presence.record("t", "w", &queues(&["a"]), at(1));
        presence.record_alive("t", "w", at(2));
        presence.record_alive("t", "new", at(2));
        let seen = presence.of("t", None, 10);
        assert_eq!((seen[0].name.as_str(), seen[0].queues.len()), ("new", 0));
        assert_eq!((seen[1].queues.as_slice(), seen[1].last_seen_at), (["a".to_owned()].as_slice(), at(2)));
        presence.begin_flush();
        presence.record_alive("t", "w", at(3));
        assert_eq!(presence.of("t", Some("v"), 10)[0].queues, ["a"]);
    }

    #[test]
    fn workers_are_paged_by_name() {
        let presence = UnflushedPresence::default();
        for name in ["c", "a", "b"] {
            presence.record("t", name, &queues(&["q"]), at(1));
        }
        let names = |after, limit| presence.of("t", after, limit).into_iter().map(|w| w.name).collect::<Vec<_>>();
        assert_eq!(names(None, 2), ["a", "b"]);
        assert_eq!(names(Some("b"), 2), ["c"]);
    }

    #[test]
    fn a_failed_flush_loses_nothing() {
        let presence = UnflushedPresence::default();
        presence.record("t", "old", &queues(&["q"]), at(1));
        presence.record("t", "both", &queues(&["q"]), at(1));
        presence.begin_flush();
        presence.record("t", "both", &queues(&["r"]), at(5));
        // The flush failed: the next one has its workers, too.
        let mut seen = presence.begin_flush();
        seen.sort_by(|one, other| one.name.cmp(&other.name));
        assert_eq!(seen.iter().map(|w| w.name.as_str()).collect::<Vec<_>>(), ["both", "old"]);
        assert_eq!((seen[0].first_seen_at, seen[0].last_seen_at), (at(1), at(5)));
        assert_eq!(seen[0].queues, ["r"]);
        presence.end_flush();
        assert!(presence.begin_flush().is_empty());
    }

    #[test]
    fn a_worker_is_shown_while_it_is_written() {
        let presence = UnflushedPresence::default();
        for name in ["a", "c"] {
            presence.record("t", name, &queues(&["q"]), at(1));
        }
        presence.begin_flush();
        presence.record("t", "b", &queues(&["r"]), at(2));
        presence.record_alive("t", "c", at(3));
        let seen = presence.of("t", None, 10);
        assert_eq!(seen.iter().map(|w| w.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!((seen[2].queues.as_slice(), seen[2].last_seen_at), (["q".to_owned()].as_slice(), at(3)));
        assert_eq!(presence.of("t", None, 2).len(), 2);
        presence.end_flush();
        assert_eq!(presence.of("t", None, 10).iter().map(|w| w.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn a_crowd_is_written_less_often() {
        let (presence, second) = (UnflushedPresence::default(), Duration::from_secs(1));
        for number in 0..CROWD {
            presence.record("t", &number.to_string(), &queues(&["q"]), at(1));
        }
        assert!(presence.is_due(second));
        presence.record("t", "one more", &queues(&["q"]), at(1));
        assert!(!presence.is_due(second) && presence.is_due(CROWD_INTERVAL));
    }

    #[test]
    fn the_memory_is_bounded() {
        let presence = UnflushedPresence::default();
        for number in 0..WORKERS_MAX + 10 {
            presence.record("t", &number.to_string(), &queues(&["q"]), at(1));
        }
        assert_eq!(presence.begin_flush().len(), WORKERS_MAX);
        presence.record("t", "before the flush ends", &queues(&["q"]), at(1));
        assert_eq!(presence.begin_flush().len(), WORKERS_MAX, "a flush that failed leaves no room");
        presence.end_flush();
        assert_eq!(presence.0.lock().count, 0);
        presence.record("t", "later", &queues(&["q"]), at(2));
        assert_eq!(presence.of("t", None, 10).len(), 1);
    }
}
