//! The lanes, by number and by key, as one thread has met them.
//!
//! A lane never changes and is never deleted, so that what is cached is true for ever,
//! once it is committed. Until then it is kept apart: a lane that was made in a
//! transaction that is rolled back was never there, and its number may be given to
//! another one.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use punctual_core::lane::{Lane, LaneId, LaneKey, Route};
use rusqlite::{Connection, OptionalExtension};

use super::fault::Fault;
use super::statements::Sql;

/// The lanes that a thread has met (see the module).
#[derive(Default)]
pub(crate) struct Lanes {
    /// Met in the transaction under way.
    fresh: Shelf,
    /// Met lately.
    young: Shelf,
    /// Met before; thrown away when `young` is full and takes its place.
    old: Shelf,
    /// How many each of `young` and `old` may hold.
    capacity: usize,
}

#[derive(Default)]
struct Shelf {
    by_id: HashMap<i64, Arc<Lane>>,
    by_key: HashSet<ByKey>,
}

impl Lanes {
    /// Remembers about so many lanes.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity: (capacity / 2).max(1), ..Self::default() }
    }

    /// The lane with this number, if there is one.
    pub(crate) fn get(&mut self, connection: &Connection, id: i64) -> Result<Option<Arc<Lane>>, Fault> {
        let by_id = |shelf: &Shelf| shelf.by_id.get(&id).cloned();
        if let Some(lane) = by_id(&self.young).or_else(|| by_id(&self.fresh)) {
            return Ok(Some(lane));
        }
        let lane = match by_id(&self.old) {
            Some(lane) => Some(lane),
            None => read(connection, id)?,
        };
        Ok(lane.inspect(|lane| self.fresh.put(lane)))
    }

    /// The lane with this key; it is made if there is none.
    pub(crate) fn resolve(&mut self, connection: &Connection, key: &LaneKey) -> Result<Arc<Lane>, Fault> {
        let by_key = |shelf: &Shelf| shelf.by_key.get(key).map(|ByKey(lane)| Arc::clone(lane));
        if let Some(lane) = by_key(&self.young).or_else(|| by_key(&self.fresh)) {
            return Ok(lane);
        }
        let lane = match by_key(&self.old) {
            Some(lane) => lane,
            None => Arc::new(Lane { id: LaneId::new(find_or_make(connection, key)?), key: key.clone() }),
        };
        self.fresh.put(&lane);
        Ok(lane)
    }

    /// The transaction was committed: what it met is there.
    pub(crate) fn keep(&mut self) {
        if self.fresh.by_id.is_empty() {
            return;
        }
        for lane in std::mem::take(&mut self.fresh).by_id.into_values() {
            if self.young.by_id.len() >= self.capacity {
                self.old = std::mem::take(&mut self.young);
            }
            self.young.put(&lane);
        }
    }

    /// The transaction, or a part of it, was rolled back: what it met may not be there.
    pub(crate) fn forget(&mut self) {
        self.fresh = Shelf::default();
    }
}

impl Shelf {
    fn put(&mut self, lane: &Arc<Lane>) {
        self.by_id.insert(lane.id.number(), Arc::clone(lane));
        self.by_key.insert(ByKey(Arc::clone(lane)));
    }
}

/// A lane that is looked for by its key.
struct ByKey(Arc<Lane>);

impl Borrow<LaneKey> for ByKey {
    fn borrow(&self) -> &LaneKey {
        &self.0.key
    }
}

impl Hash for ByKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

fn read(connection: &Connection, id: i64) -> Result<Option<Arc<Lane>>, Fault> {
    let mut query = connection.prepare_cached(Sql::LaneGet.text())?;
    let lane = query.query_row([id], |row| {
        let target: String = row.get(4)?;
        let route = if target.is_empty() { Route::Pull } else { Route::Push(target) };
        let key = LaneKey { tenant: row.get(0)?, queue: row.get(1)?, kind: row.get(2)?, priority: row.get(3)?, route };
        Ok(Arc::new(Lane { id: LaneId::new(id), key }))
    });
    Ok(lane.optional()?)
}

fn find_or_make(connection: &Connection, key: &LaneKey) -> Result<i64, Fault> {
    let target = match &key.route {
        Route::Pull => "",
        Route::Push(target) => target,
    };
    let columns = (&key.tenant, &key.queue, &key.kind, key.priority, target);
    let mut find = connection.prepare_cached(Sql::LaneFind.text())?;
    if let Some(id) = find.query_row(columns, |row| row.get(0)).optional()? {
        return Ok(id);
    }
    Ok(connection.prepare_cached(Sql::LaneInsert.text())?.insert(columns)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrations::sqlite as migrations;
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
        let (connection, mut lanes) = (database(), Lanes::new(10));
        for route in [Route::Pull, Route::Push("http://a:80".into())] {
            let lane = lanes.resolve(&connection, &key("q", route.clone())).unwrap();
            lanes.keep();
            let mut others = Lanes::new(10);
            assert_eq!(others.resolve(&connection, &key("q", route)).unwrap(), lane);
            assert_eq!(Lanes::new(10).get(&connection, lane.id.number()).unwrap(), Some(lane));
        }
        assert_eq!(lanes.get(&connection, 99).unwrap(), None);
    }

    #[test]
    fn a_lane_does_not_outlive_its_transaction() {
        let (connection, mut lanes) = (database(), Lanes::new(10));
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
    fn few_lanes_are_remembered_and_all_are_found() {
        let (connection, mut lanes) = (database(), Lanes::new(6));
        let made: Vec<_> = (0..50)
            .map(|number| {
                let lane = lanes.resolve(&connection, &key(&number.to_string(), Route::Pull)).unwrap();
                lanes.keep();
                lane
            })
            .collect();
        assert!(lanes.young.by_id.len() + lanes.old.by_id.len() <= 6);
        for lane in made {
            assert_eq!(lanes.get(&connection, lane.id.number()).unwrap().as_ref(), Some(&lane));
            assert_eq!(lanes.resolve(&connection, &lane.key).unwrap(), lane);
            lanes.keep();
        }
    }
}
