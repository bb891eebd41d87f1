//! The pull workers seen since the last flush.
//!
//! Every lease call is a sighting, and whatever else a worker says where its name is known without
//! asking the store for it. They are kept in memory and written to the registry every few seconds in
//! one batch, so that asking for work costs no write. Who is busy and says nothing is told by the leases
//! it holds.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::store::StoreError;
use punctual_core::time::Timestamp;
use punctual_core::workers::WorkerSighting;
use punctual_scheduler::desk::Wants;
use tokio_util::sync::CancellationToken;

use crate::state::Api;

/// Workers remembered between two flushes. Beyond it a new one is not shown until its next call; it gets its
/// tasks all the same.
const MOST: usize = 50_000;
/// Leases that are looked at, of all tenants, to tell which workers are busy.
pub(crate) const LEASES: usize = 10_000;
/// How often they are written.
const EVERY: Duration = Duration::from_secs(5);

/// The workers seen since the last flush.
#[derive(Default)]
pub struct Sightings(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    workers: usize,
    by_tenant: HashMap<String, BTreeMap<String, WorkerSighting>>,
}

impl Sightings {
    /// `worker` was seen at `now`, asking for `wants`.
    pub fn note(&self, tenant: &str, worker: &str, wants: &Wants, now: Timestamp) {
        self.see(tenant, worker, Some(wants), now);
    }

    /// `worker` was seen at `now`, doing something else than to ask for tasks.
    pub fn note_alive(&self, tenant: &str, worker: &str, now: Timestamp) {
        self.see(tenant, worker, None, now);
    }

    fn see(&self, tenant: &str, worker: &str, wants: Option<&Wants>, now: Timestamp) {
        let mut seen = self.0.lock();
        if let Some(known) = seen.by_tenant.get_mut(tenant).and_then(|workers| workers.get_mut(worker)) {
            known.last_seen_at = known.last_seen_at.max(now);
            let same = match wants {
                None => true,
                Some(Wants::Queues(queues)) => known.queues == *queues && known.kinds.is_empty(),
                Some(Wants::Kinds(kinds)) => known.kinds == *kinds && known.queues.is_empty(),
            };
            if !same {
                (known.queues, known.kinds) = asked_for(wants);
            }
            return;
        }
        if seen.workers >= MOST {
            return;
        }
        let (queues, kinds) = asked_for(wants);
        let sighting = WorkerSighting {
            tenant: tenant.to_owned(),
            name: worker.to_owned(),
            queues,
            kinds,
            first_seen_at: now,
            last_seen_at: now,
        };
        seen.workers += 1;
        seen.by_tenant.entry(tenant.to_owned()).or_default().insert(worker.to_owned(), sighting);
    }

    /// The workers of `tenant` by name, strictly after `after`, at most `limit`.
    pub fn of(&self, tenant: &str, after: Option<&str>, limit: usize) -> Vec<WorkerSighting> {
        let seen = self.0.lock();
        let Some(workers) = seen.by_tenant.get(tenant) else { return Vec::new() };
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        workers.range::<str, _>((after, Bound::Unbounded)).take(limit).map(|(_, sighting)| sighting.clone()).collect()
    }

    fn take(&self) -> Vec<WorkerSighting> {
        let seen = std::mem::take(&mut *self.0.lock());
        seen.by_tenant.into_values().flat_map(BTreeMap::into_values).collect()
    }

    /// Puts back what could not be written, under what was seen since.
    fn put_back(&self, sightings: Vec<WorkerSighting>) {
        let mut seen = self.0.lock();
        for sighting in sightings {
            let workers = seen.by_tenant.entry(sighting.tenant.clone()).or_default();
            if let Some(newer) = workers.get_mut(&sighting.name) {
                *newer = newer.clone().following(&sighting);
            } else {
                workers.insert(sighting.name.clone(), sighting);
                seen.workers += 1;
            }
        }
    }
}

fn asked_for(wants: Option<&Wants>) -> (Vec<String>, Vec<String>) {
    match wants {
        None => (Vec::new(), Vec::new()),
        Some(Wants::Queues(queues)) => (queues.clone(), Vec::new()),
        Some(Wants::Kinds(kinds)) => (Vec::new(), kinds.clone()),
    }
}

/// Writes the sightings to the registry.
pub struct SightingsFlusher {
    api: Api,
}

impl SightingsFlusher {
    /// Writes what `api` has seen.
    pub fn new(api: Api) -> Self {
        Self { api }
    }

    /// Writes every few seconds, and once more at the end.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut failing = false;
        loop {
            let ending = tokio::select! {
                () = shutdown.cancelled() => true,
                () = tokio::time::sleep(EVERY) => false,
            };
            match self.run_once().await {
                Ok(_) => failing = false,
                Err(error) if !failing => {
                    failing = true;
                    tracing::warn!(%error, "workers that were seen could not be written; trying again");
                }
                Err(_) => {}
            }
            if ending {
                return;
            }
        }
    }

    /// Writes what was seen since the last time. Tells how many workers that were.
    pub async fn run_once(&self) -> Result<usize, StoreError> {
        let sightings = self.api.sightings.take();
        if sightings.is_empty() {
            return Ok(0);
        }
        let count = sightings.len();
        match self.api.registry.saw_workers(sightings.clone()).await {
            Ok(()) => Ok(count),
            Err(error) => {
                self.api.sightings.put_back(sightings);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn queues(names: &[&str]) -> Wants {
        Wants::Queues(names.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_worker_is_kept_once_with_what_it_asked_last() {
        let sightings = Sightings::default();
        sightings.note("t", "w", &queues(&["a"]), at(1));
        sightings.note("t", "w", &Wants::Kinds(vec!["mail".into()]), at(3));
        sightings.note("t", "w", &Wants::Kinds(vec!["mail".into()]), at(2));
        sightings.note("u", "w", &queues(&["b"]), at(2));
        let seen = sightings.of("t", None, 10);
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].first_seen_at, seen[0].last_seen_at), (at(1), at(3)));
        assert_eq!((seen[0].queues.len(), seen[0].kinds.as_slice()), (0, ["mail".to_owned()].as_slice()));
    }

    #[test]
    fn a_sign_of_life_keeps_what_was_asked_for() {
        let sightings = Sightings::default();
        sightings.note("t", "w", &queues(&["a"]), at(1));
        sightings.note_alive("t", "w", at(2));
        sightings.note_alive("t", "new", at(2));
        let seen = sightings.of("t", None, 10);
        assert_eq!((seen[0].name.as_str(), seen[0].queues.len()), ("new", 0));
        assert_eq!((seen[1].queues.as_slice(), seen[1].last_seen_at), (["a".to_owned()].as_slice(), at(2)));
        let taken = sightings.take();
        sightings.note_alive("t", "w", at(3));
        sightings.put_back(taken);
        assert_eq!(sightings.of("t", Some("v"), 10)[0].queues, ["a"]);
    }

    #[test]
    fn workers_are_paged_by_name() {
        let sightings = Sightings::default();
        for name in ["c", "a", "b"] {
            sightings.note("t", name, &queues(&["q"]), at(1));
        }
        let names = |after, limit| sightings.of("t", after, limit).into_iter().map(|w| w.name).collect::<Vec<_>>();
        assert_eq!(names(None, 2), ["a", "b"]);
        assert_eq!(names(Some("b"), 2), ["c"]);
    }

    #[test]
    fn what_could_not_be_written_is_not_lost() {
        let sightings = Sightings::default();
        sightings.note("t", "old", &queues(&["q"]), at(1));
        sightings.note("t", "both", &queues(&["q"]), at(1));
        let taken = sightings.take();
        sightings.note("t", "both", &queues(&["r"]), at(5));
        sightings.put_back(taken);
        let seen = sightings.of("t", None, 10);
        assert_eq!(seen.iter().map(|w| w.name.as_str()).collect::<Vec<_>>(), ["both", "old"]);
        assert_eq!((seen[0].first_seen_at, seen[0].last_seen_at), (at(1), at(5)));
        assert_eq!(seen[0].queues, ["r"]);
        assert_eq!(sightings.0.lock().workers, 2);
    }

    #[test]
    fn the_memory_is_bounded() {
        let sightings = Sightings::default();
        for number in 0..MOST + 10 {
            sightings.note("t", &number.to_string(), &queues(&["q"]), at(1));
        }
        assert_eq!(sightings.take().len(), MOST);
        sightings.note("t", "later", &queues(&["q"]), at(2));
        assert_eq!(sightings.of("t", None, 10).len(), 1);
    }
}
