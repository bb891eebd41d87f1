//! The lanes that this process has seen, cached.
//!
//! A lane is made by a statement of its own, before the transaction that needs it. So every lane in
//! the cache is committed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::RwLock;
use punctual_core::lane::{Lane, LaneId, LaneKey};
use sha2::{Digest, Sha256};
use tokio_postgres::Row;

use super::connection::Session;
use super::fault::Fault;
use super::statements::Sql;
use crate::lane_cache::{LaneCache, route_of, target_column};

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
        let (mut found, mut missing) = (HashMap::new(), HashMap::new());
        {
            let known = self.known.read();
            for key in keys {
                if found.contains_key(key) {
                    continue;
                }
                match known.by_key(key) {
                    Some(lane) => drop(found.insert(key, Arc::clone(lane))),
                    None => drop(missing.insert(digest(key), key)),
                }
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        for is_last in [false, true] {
            let digests: Vec<&[u8]> = missing.keys().map(<[u8; 32]>::as_slice).collect();
            for row in session.query(Sql::LaneFind, &[&digests]).await? {
                let (id, digest): (i64, &[u8]) = (row.get(0), row.get(1));
                let Some(key) = missing.remove(digest) else { continue };
                let lane = Arc::new(Lane { id: LaneId::new(id), key: key.clone() });
                self.known.write().insert(&lane);
                found.insert(key, lane);
            }
            if missing.is_empty() {
                return Ok(found);
            }
            if !is_last {
                make(session, &missing).await?;
            }
        }
        Err(Fault::Corrupt("a lane that was made is missing".to_owned()))
    }
}

/// Makes lanes in a fixed order, so that writers that make the same lanes do not deadlock.
async fn make(session: &Session, missing: &HashMap<[u8; 32], &LaneKey>) -> Result<(), Fault> {
    let mut lanes: Vec<(&[u8], &LaneKey)> = missing.iter().map(|(digest, key)| (digest.as_slice(), *key)).collect();
    lanes.sort_unstable_by_key(|(digest, _)| *digest);
    let digests: Vec<&[u8]> = lanes.iter().map(|(digest, _)| *digest).collect();
    let texts = |part: fn(&LaneKey) -> &str| lanes.iter().map(|(_, key)| part(key)).collect::<Vec<&str>>();
    let priorities: Vec<i16> = lanes.iter().map(|(_, key)| i16::from(key.priority)).collect();
    let (tenants, queues, kinds) = (texts(|key| &key.tenant), texts(|key| &key.queue), texts(|key| &key.kind));
    let targets = texts(target_column);
    session.execute(Sql::LaneMake, &[&digests, &tenants, &queues, &kinds, &priorities, &targets]).await?;
    Ok(())
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
