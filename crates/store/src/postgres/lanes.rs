//! The lanes that this process has seen, cached.
//!
//! A lane is made by a statement of its own, before the transaction that needs it. So every lane in
//! the cache is committed. The leader may have removed it since (`reclaim.rs`): a transaction that
//! puts tasks into lanes runs [`KEEP_LANES`] first, and finds out whether they still exist. If one
//! is missing it forgets them and is tried again.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;
use punctual_core::lane::{Lane, LaneId, LaneKey};
use sha2::{Digest, Sha256};
use tokio_postgres::Row;

use super::connection::{Parameters, Session};
use super::fault::Fault;
use super::statements::Sql;
use crate::lane_cache::{LaneCache, route_of, target_column};

/// Keeps the lanes that the transaction finds from being removed before it has ended.
pub(crate) const KEEP_LANES: &str = "LOCK TABLE lanes IN ROW SHARE MODE";

/// Begins a transaction that puts tasks into lanes.
pub(crate) const BEGIN_KEEPING_LANES: &str = "BEGIN; LOCK TABLE lanes IN ROW SHARE MODE";

/// The lanes of the store, cached (see the module).
pub(crate) struct LaneDirectory {
    known: RwLock<LaneCache>,
}

impl LaneDirectory {
    /// A directory that caches about `capacity` lanes.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { known: RwLock::new(LaneCache::new(capacity)) }
    }

    /// The lanes with these numbers, as far as they exist.
    pub(crate) async fn get(
        &self,
        session: &Session,
        ids: impl IntoIterator<Item = i64>,
    ) -> Result<HashMap<i64, Arc<Lane>>, Fault> {
        let (mut found, mut missing) = (HashMap::new(), Vec::new());
        let wanted: HashSet<i64> = ids.into_iter().collect();
        {
            let known = self.known.read();
            for id in wanted {
                match known.by_id(id) {
                    Some(lane) => drop(found.insert(id, Arc::clone(lane))),
                    None => missing.push(id),
                }
            }
        }
        if !missing.is_empty() {
            for row in session.query(Sql::LaneGet, &[&missing]).await? {
                let lane = lane(&row);
                self.known.write().insert(&lane);
                found.insert(lane.id.number(), lane);
            }
        }
        Ok(found)
    }

    /// The lanes with these numbers, as far as they are cached.
    pub(crate) fn peek(&self, ids: impl IntoIterator<Item = i64>) -> Vec<Arc<Lane>> {
        let known = self.known.read();
        ids.into_iter().filter_map(|id| known.by_id(id).cloned()).collect()
    }

    /// The lane with this number, if there is one.
    pub(crate) async fn get_one(&self, session: &Session, id: i64) -> Result<Option<Arc<Lane>>, Fault> {
        Ok(self.get(session, [id]).await?.remove(&id))
    }

    /// The lanes with these keys; missing ones are made.
    pub(crate) async fn resolve<'k>(
        &self,
        session: &Session,
        keys: impl IntoIterator<Item = &'k LaneKey>,
    ) -> Result<HashMap<&'k LaneKey, Arc<Lane>>, Fault> {
        self.find_or_make(session, keys, i64::MAX).await
    }

    /// The same, but a tenant gets no more lanes than `tenant_max`: the others are left out.
    pub(crate) async fn admit<'k>(
        &self,
        session: &Session,
        keys: impl IntoIterator<Item = &'k LaneKey>,
        tenant_max: u64,
    ) -> Result<HashMap<&'k LaneKey, Arc<Lane>>, Fault> {
        let tenant_max = i64::try_from(tenant_max).unwrap_or(i64::MAX);
        self.find_or_make(session, keys, tenant_max).await
    }

    /// Forgets lanes that may have been removed.
    pub(crate) fn forget(&self, ids: impl IntoIterator<Item = i64>) {
        let mut known = self.known.write();
        ids.into_iter().for_each(|id| known.remove(id));
    }

    /// Makes sure, in the transaction that is under way, that these lanes exist until it has ended.
    pub(crate) async fn keep(&self, session: &Session, ids: &[i64]) -> Result<(), Fault> {
        let parameters: Parameters<'_> = &[&ids];
        let missing = session.query(Sql::LaneMissing, parameters);
        let (locked, missing) = tokio::join!(biased; session.run(KEEP_LANES), missing);
        locked?;
        if missing?.is_empty() { Ok(()) } else { Err(self.vanished(ids.iter().copied())) }
    }

    /// The fault of a transaction that has put tasks into these lanes: if one of the lanes was
    /// missing, they are forgotten, so that the next try makes it again.
    pub(crate) fn fault_of(&self, fault: Fault, lanes: &[Arc<Lane>]) -> Fault {
        if fault.is_of_missing_lane() { self.vanished(lanes.iter().map(|lane| lane.id.number())) } else { fault }
    }

    fn vanished(&self, ids: impl IntoIterator<Item = i64>) -> Fault {
        self.forget(ids);
        Fault::Vanished("a lane was removed meanwhile".to_owned())
    }

    /// The lanes with these keys, made as far as their tenants may have them.
    async fn find_or_make<'k>(
        &self,
        session: &Session,
        keys: impl IntoIterator<Item = &'k LaneKey>,
        tenant_max: i64,
    ) -> Result<HashMap<&'k LaneKey, Arc<Lane>>, Fault> {
        let (mut found, mut missing) = (HashMap::new(), MissingLanes::default());
        {
            let known = self.known.read();
            for key in keys {
                if found.contains_key(key) {
                    continue;
                }
                match known.by_key(key) {
                    Some(lane) => drop(found.insert(key, Arc::clone(lane))),
                    None => missing.insert(key),
                }
            }
        }
        for is_last in [false, true] {
            if missing.is_empty() {
                break;
            }
            for row in session.query(Sql::LaneFind, &[&missing.digests()]).await? {
                let (id, digest): (i64, &[u8]) = (row.get(0), row.get(1));
                let Some(key) = missing.remove(digest) else { continue };
                let lane = Arc::new(Lane { id: LaneId::new(id), key: key.clone() });
                self.known.write().insert(&lane);
                found.insert(key, lane);
            }
            if !is_last && !missing.is_empty() {
                missing.make(session, tenant_max).await?;
            }
        }
        // Another node may have made it, and the leader removed it: not a reason to refuse a task.
        let is_complete = missing.is_empty();
        if is_complete { Ok(found) } else { Err(Fault::Vanished("a lane was removed meanwhile".to_owned())) }
    }
}

/// The keys of lanes that were not found, by their digests and by their place in the call.
#[derive(Default)]
struct MissingLanes<'k> {
    keys: BTreeMap<usize, ([u8; 32], &'k LaneKey)>,
    places: HashMap<[u8; 32], usize>,
}

impl<'k> MissingLanes<'k> {
    fn insert(&mut self, key: &'k LaneKey) {
        let (digest, place) = (digest(key), self.places.len());
        if let Entry::Vacant(vacant) = self.places.entry(digest) {
            vacant.insert(place);
            self.keys.insert(place, (digest, key));
        }
    }

    fn remove(&mut self, digest: &[u8]) -> Option<&'k LaneKey> {
        let place = self.places.get(digest)?;
        self.keys.remove(place).map(|(_, key)| key)
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn digests(&self) -> Vec<&[u8]> {
        self.keys.values().map(|(digest, _)| digest.as_slice()).collect()
    }

    /// Makes the lanes, the first of each tenant up to `tenant_max` lanes in all. The others are
    /// not looked for any more.
    async fn make(&mut self, session: &Session, tenant_max: i64) -> Result<(), Fault> {
        let keys: Vec<&LaneKey> = self.keys.values().map(|(_, key)| *key).collect();
        let texts = |part: fn(&LaneKey) -> &str| keys.iter().map(|key| part(key)).collect::<Vec<&str>>();
        let priorities: Vec<i16> = keys.iter().map(|key| i16::from(key.priority)).collect();
        let (tenants, queues, kinds) = (texts(|key| &key.tenant), texts(|key| &key.queue), texts(|key| &key.kind));
        let (digests, targets) = (self.digests(), texts(target_column));
        let parameters: Parameters<'_> = &[&digests, &tenants, &queues, &kinds, &priorities, &targets, &tenant_max];
        let refused = session.query(Sql::LaneMake, parameters).await?;
        for row in refused {
            self.remove(row.get(0));
        }
        Ok(())
    }
}

/// The digest by which a lane is found. Every part has its length before it, so that different keys
/// have different input.
fn digest(key: &LaneKey) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in [&key.tenant, &key.queue, &key.kind, target_column(key)] {
        digest.update(part.len().to_be_bytes());
        digest.update(part);
    }
    digest.update([key.priority]);
    digest.finalize().into()
}

fn lane(row: &Row) -> Arc<Lane> {
    let priority = u8::try_from(row.get::<_, i16>(4)).unwrap_or_default();
    let key =
        LaneKey { tenant: row.get(1), queue: row.get(2), kind: row.get(3), priority, route: route_of(row.get(5)) };
    Arc::new(Lane { id: LaneId::new(row.get(0)), key })
}
