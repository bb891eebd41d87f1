//! The lanes that a process has met, by number and by key: the cache of both stores.
//!
//! `sqlite::lanes` keeps one for each thread, `postgres::lanes` one for the process. A lane never
//! changes and no number is given twice, so a cached lane stays true until it is removed, and then
//! it has no tasks. A transaction that inserts tasks into a cached lane checks that the lane still
//! exists. Only committed lanes may be cached.
//! There are two generations: when the young one is full it becomes the old one, and the old one is
//! dropped. The cache never holds more than its capacity.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use punctual_core::lane::{Lane, LaneKey, Route};

/// Lanes in two generations (see the module).
#[derive(Default)]
pub(crate) struct LaneCache {
    /// Met recently.
    pub young: LaneMap,
    /// Met before; dropped when `young` is full and takes its place.
    pub old: LaneMap,
    /// How many lanes each generation may hold.
    generation_max: usize,
}

impl LaneCache {
    /// A cache of about `capacity` lanes.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { generation_max: (capacity / 2).max(1), ..Self::default() }
    }

    /// The lane with this number, if it is in either generation.
    pub(crate) fn by_id(&self, id: i64) -> Option<&Arc<Lane>> {
        self.young.by_id(id).or_else(|| self.old.by_id(id))
    }

    /// The lane with this key, if it is in either generation.
    pub(crate) fn by_key(&self, key: &LaneKey) -> Option<&Arc<Lane>> {
        self.young.by_key(key).or_else(|| self.old.by_key(key))
    }

    /// Puts a committed lane into the young generation.
    pub(crate) fn insert(&mut self, lane: &Arc<Lane>) {
        if self.young.len() >= self.generation_max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(lane);
        debug_assert!(self.young.len() <= self.generation_max && self.old.len() <= self.generation_max);
    }

    /// Forgets a lane that was removed.
    pub(crate) fn remove(&mut self, id: i64) {
        self.young.remove(id);
        self.old.remove(id);
    }
}

/// Lanes by number and by key.
#[derive(Default)]
pub(crate) struct LaneMap {
    by_id: HashMap<i64, Arc<Lane>>,
    by_key: HashSet<KeyedLane>,
}

impl LaneMap {
    /// The lane with this number.
    pub(crate) fn by_id(&self, id: i64) -> Option<&Arc<Lane>> {
        self.by_id.get(&id)
    }

    /// The lane with this key.
    pub(crate) fn by_key(&self, key: &LaneKey) -> Option<&Arc<Lane>> {
        self.by_key.get(key).map(|KeyedLane(lane)| lane)
    }

    /// Puts a lane in.
    pub(crate) fn insert(&mut self, lane: &Arc<Lane>) {
        self.by_id.insert(lane.id.number(), Arc::clone(lane));
        // A lane with this key that was removed gives way.
        self.by_key.replace(KeyedLane(Arc::clone(lane)));
    }

    /// Takes a lane out.
    pub(crate) fn remove(&mut self, id: i64) {
        if let Some(lane) = self.by_id.remove(&id)
            && self.by_key(&lane.key).is_some_and(|of_key| of_key.id == lane.id)
        {
            self.by_key.remove(&lane.key);
        }
    }

    /// How many lanes there are.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Takes all lanes out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Arc<Lane>> + use<> {
        std::mem::take(self).by_id.into_values()
    }
}

/// A lane that is found by its key.
struct KeyedLane(Arc<Lane>);

impl Borrow<LaneKey> for KeyedLane {
    fn borrow(&self) -> &LaneKey {
        &self.0.key
    }
}

impl Hash for KeyedLane {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.key.hash(state);
    }
}

impl PartialEq for KeyedLane {
    fn eq(&self, other: &Self) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for KeyedLane {}

/// The column that says where tasks of a lane go: the target, or nothing if workers pull them.
pub(crate) fn target_column(key: &LaneKey) -> &str {
    match &key.route {
        Route::Pull => "",
        Route::Push(target) => target,
    }
}

/// The route that [`target_column`] stands for.
pub(crate) fn route_of(target: String) -> Route {
    if target.is_empty() { Route::Pull } else { Route::Push(target) }
}

#[cfg(test)]
mod tests {
    use punctual_core::lane::LaneId;

    use super::*;

    fn lane(id: i64) -> Arc<Lane> {
        let route = route_of(if id % 2 == 0 { String::new() } else { format!("http://{id}") });
        let key = LaneKey { tenant: "t".into(), queue: id.to_string(), kind: "k".into(), priority: 5, route };
        Arc::new(Lane { id: LaneId::new(id), key })
    }

    #[test]
    fn a_lane_is_found_by_number_and_by_key() {
        let (mut cache, lane) = (LaneCache::new(10), lane(7));
        assert!(cache.by_id(7).is_none() && cache.by_key(&lane.key).is_none());
        cache.insert(&lane);
        assert_eq!((cache.by_id(7), cache.by_key(&lane.key)), (Some(&lane), Some(&lane)));
    }

    #[test]
    fn the_cache_stays_within_its_capacity() {
        let mut cache = LaneCache::new(6);
        for id in 0..50 {
            cache.insert(&lane(id));
            assert!(cache.young.len() + cache.old.len() <= 6);
            assert!(cache.by_id(id).is_some());
        }
        assert!(cache.by_id(47).is_some() && cache.by_id(0).is_none());
    }

    #[test]
    fn a_removed_lane_gives_way_to_the_next_with_its_key() {
        let (mut cache, removed) = (LaneCache::new(10), lane(7));
        let next = Arc::new(Lane { id: LaneId::new(8), key: removed.key.clone() });
        cache.insert(&removed);
        cache.insert(&next);
        assert_eq!(cache.by_key(&removed.key), Some(&next));
        cache.remove(7);
        assert_eq!((cache.by_id(7), cache.by_key(&removed.key)), (None, Some(&next)));
        cache.remove(8);
        assert_eq!((cache.by_id(8), cache.by_key(&removed.key)), (None, None));
    }

    #[test]
    fn a_route_is_read_as_it_was_written() {
        for id in [1, 2] {
            let lane = lane(id);
            assert_eq!(route_of(target_column(&lane.key).to_owned()), lane.key.route);
        }
    }
}
