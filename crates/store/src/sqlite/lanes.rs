//! The lanes that one thread has met.
//!
//! A rolled back transaction leaves no lanes, and the numbers of its new lanes may be used again.
//! So lanes met in the current transaction are kept apart until it is committed. Only the writer
//! makes and removes lanes, so those that it has cached exist.

use std::sync::Arc;

use punctual_core::lane::{Lane, LaneId, LaneKey};
use rusqlite::{Connection, OptionalExtension};

use super::fault::Fault;
use super::statements::Sql;
use crate::lane_cache::{LaneCache, LaneMap, route_of, target_column};

/// The lanes of the store, cached (see the module).
pub(crate) struct LaneDirectory {
    /// Met in the current transaction.
    fresh: LaneMap,
    known: LaneCache,
    /// How many lanes a tenant may have.
    tenant_max: u64,
}

impl LaneDirectory {
    /// A directory that caches about `capacity` lanes.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { known: LaneCache::new(capacity), fresh: LaneMap::default(), tenant_max: u64::MAX }
    }

    /// A tenant may have at most this many lanes.
    pub(crate) fn with_tenant_max(self, tenant_max: u64) -> Self {
        Self { tenant_max, ..self }
    }

    /// The lane with this number, if there is one.
    pub(crate) fn get(&mut self, connection: &Connection, id: i64) -> Result<Option<Arc<Lane>>, Fault> {
        if let Some(lane) = self.known.young.by_id(id).or_else(|| self.fresh.by_id(id)) {
            return Ok(Some(Arc::clone(lane)));
        }
        let lane = match self.known.old.by_id(id) {
            Some(lane) => Some(Arc::clone(lane)),
            None => read(connection, id)?,
        };
        Ok(lane.inspect(|lane| self.fresh.insert(lane)))
    }

    /// The lane with this key; a missing one is made.
    pub(crate) fn resolve(&mut self, connection: &Connection, key: &LaneKey) -> Result<Arc<Lane>, Fault> {
        if let Some(lane) = self.known.young.by_key(key).or_else(|| self.fresh.by_key(key)) {
            return Ok(Arc::clone(lane));
        }
        let lane = match self.known.old.by_key(key) {
            Some(lane) => Arc::clone(lane),
            None => Arc::new(Lane { id: LaneId::new(find_or_make(connection, key)?), key: key.clone() }),
        };
        self.fresh.insert(&lane);
        Ok(lane)
    }

    /// Makes sure that a lane with this key exists. If its tenant may not have another one, returns
    /// how many it may have.
    pub(crate) fn admit(&mut self, connection: &Connection, key: &LaneKey) -> Result<Option<u64>, Fault> {
        let is_known = self.known.by_key(key).is_some() || self.fresh.by_key(key).is_some();
        if is_known || find(connection, key)?.is_some() || count(connection, &key.tenant)? < self.tenant_max {
            self.resolve(connection, key)?;
            return Ok(None);
        }
        Ok(Some(self.tenant_max))
    }

    /// The lane with this number is removed.
    pub(crate) fn remove(&mut self, id: i64) {
        self.fresh.remove(id);
        self.known.remove(id);
    }

    /// The transaction was committed: the lanes it met exist.
    pub(crate) fn keep(&mut self) {
        if self.fresh.len() > 0 {
            self.fresh.drain().for_each(|lane| self.known.insert(&lane));
        }
    }

    /// The transaction, or a part of it, was rolled back: the lanes it met may not exist.
    pub(crate) fn forget(&mut self) {
        self.fresh = LaneMap::default();
    }
}

fn read(connection: &Connection, id: i64) -> Result<Option<Arc<Lane>>, Fault> {
    let mut query = connection.prepare_cached(Sql::LaneGet.text())?;
    let lane = query.query_row([id], |row| {
        let (tenant, queue, kind, priority) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        let key = LaneKey { tenant, queue, kind, priority, route: route_of(row.get(4)?) };
        Ok(Arc::new(Lane { id: LaneId::new(id), key }))
    });
    Ok(lane.optional()?)
}

fn find_or_make(connection: &Connection, key: &LaneKey) -> Result<i64, Fault> {
    if let Some(id) = find(connection, key)? {
        return Ok(id);
    }
    Ok(connection.prepare_cached(Sql::LaneInsert.text())?.insert(columns(key))?)
}

fn find(connection: &Connection, key: &LaneKey) -> Result<Option<i64>, Fault> {
    let mut find = connection.prepare_cached(Sql::LaneFind.text())?;
    Ok(find.query_row(columns(key), |row| row.get(0)).optional()?)
}

/// How many lanes a tenant has.
fn count(connection: &Connection, tenant: &str) -> Result<u64, Fault> {
    let mut count = connection.prepare_cached(Sql::LaneCount.text())?;
    let lanes: Option<i64> = count.query_row([tenant], |row| row.get(0)).optional()?;
    Ok(lanes.and_then(|lanes| u64::try_from(lanes).ok()).unwrap_or(0))
}

fn columns(key: &LaneKey) -> (&str, &str, &str, u8, &str) {
    (&key.tenant, &key.queue, &key.kind, key.priority, target_column(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrations::sqlite as migrations;
    use punctual_core::lane::Route;
    use punctual_core::time::Timestamp;

    fn key(queue: &str, route: Route) -> LaneKey {
        LaneKey { tenant: "t".into(), queue: queue.into(), kind: "k".into(), priority: 5, route }
    }

    fn database() -> Connection {
        let mut connection = Connection::open_in_memory().unwrap();
        migrations::up(&mut connection, Timestamp::from_millis(0)).unwrap();
        connection
    }

    #[test]
    fn a_lane_is_made_once_and_found_both_ways() {
        let (connection, mut lanes) = (database(), LaneDirectory::new(10));
        for route in [Route::Pull, Route::Push("http://a:80".into())] {
            let lane = lanes.resolve(&connection, &key("q", route.clone())).unwrap();
            lanes.keep();
            let mut others = LaneDirectory::new(10);
            assert_eq!(others.resolve(&connection, &key("q", route)).unwrap(), lane);
            assert_eq!(LaneDirectory::new(10).get(&connection, lane.id.number()).unwrap(), Some(lane));
        }
        assert_eq!(lanes.get(&connection, 99).unwrap(), None);
    }

    #[test]
    fn a_lane_does_not_outlive_its_transaction() {
        let (connection, mut lanes) = (database(), LaneDirectory::new(10));
        connection.execute_batch("BEGIN").unwrap();
        let lost = lanes.resolve(&connection, &key("lost", Route::Pull)).unwrap();
        connection.execute_batch("ROLLBACK").unwrap();
        lanes.forget();
        assert_eq!(lanes.get(&connection, lost.id.number()).unwrap(), None);
        let other = lanes.resolve(&connection, &key("other", Route::Pull)).unwrap();
        assert_eq!(other.id, lost.id, "the number was free again");
        assert_ne!(lanes.resolve(&connection, &key("lost", Route::Pull)).unwrap().id, other.id);
    }

    #[test]
    fn lanes_that_left_the_cache_are_found() {
        let (connection, mut lanes) = (database(), LaneDirectory::new(6));
        let made: Vec<_> = (0..50)
            .map(|number| {
                let lane = lanes.resolve(&connection, &key(&number.to_string(), Route::Pull)).unwrap();
                lanes.keep();
                lane
            })
            .collect();
        assert!(lanes.known.young.len() + lanes.known.old.len() <= 6);
        for lane in made {
            assert_eq!(lanes.get(&connection, lane.id.number()).unwrap().as_ref(), Some(&lane));
            assert_eq!(lanes.resolve(&connection, &lane.key).unwrap(), lane);
            lanes.keep();
        }
    }
}
