//! Where the rows of held tasks lie: their claim knows it, and their settlement needs it soon.
//!
//! Claims and starts note the places, and [`change::finish`](super::super::apply::change::finish)
//! takes them, which saves it from looking for the ids. Invariant: a place is a hint. The statement
//! compares the id and the version there, and a row that lies elsewhere by now is found by its id.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use punctual_core::lane::Lane;
use punctual_core::state::Change;

use crate::postgres::tid::Tid;

/// How many places a generation has. There are two of them, with about 10 MB.
const GENERATION: usize = 1 << 16;

/// The places of rows that this node has claimed or started (see the module).
#[derive(Default)]
pub(crate) struct HeldPlaces {
    generations: Mutex<Generations>,
}

/// The older generation is forgotten when the younger one is full.
#[derive(Default)]
struct Generations {
    young: HashMap<TaskId, HeldPlace>,
    old: HashMap<TaskId, HeldPlace>,
}

/// Where a row lay when it had this version.
pub(crate) struct HeldPlace {
    pub tid: Tid,
    pub version: u64,
    pub lane: Arc<Lane>,
}

impl HeldPlaces {
    /// Remembers places.
    pub(crate) fn note(&self, places: impl IntoIterator<Item = (TaskId, HeldPlace)>) {
        let generations = &mut *self.generations.lock();
        for (id, place) in places {
            if generations.young.len() >= GENERATION {
                generations.old = std::mem::take(&mut generations.young);
            }
            generations.young.insert(id, place);
        }
    }

    /// Takes the places of the rows to which these changes apply; none where the place is not
    /// known, or the change has a condition that only the row can answer.
    pub(crate) fn take<'a>(&self, changes: impl IntoIterator<Item = (TaskId, &'a Change)>) -> Vec<Option<Tid>> {
        let generations = &mut *self.generations.lock();
        let place = |(id, change): (TaskId, &Change)| {
            let known = generations.young.remove(&id).or_else(|| generations.old.remove(&id))?;
            known.suits(change).then_some(known.tid)
        };
        changes.into_iter().map(place).collect()
    }
}

impl HeldPlace {
    /// Whether the change expects this version, of a task of this tenant. A task with this version
    /// is still in the same lane.
    fn suits(&self, change: &Change) -> bool {
        change.expected_version == self.version
            && change.expected_hold.is_none()
            && change.tenant.as_deref().is_none_or(|tenant| tenant == self.lane.key.tenant)
    }
}

#[cfg(test)]
mod tests {
    use punctual_core::lane::{LaneId, LaneKey, Route};

    use super::*;

    fn place(lane: &Arc<Lane>) -> HeldPlace {
        HeldPlace { tid: Tid::first_of(7), version: 3, lane: Arc::clone(lane) }
    }

    fn lane() -> Arc<Lane> {
        let key = LaneKey { tenant: "a".into(), queue: "q".into(), kind: "k".into(), priority: 5, route: Route::Pull };
        Arc::new(Lane { id: LaneId::new(1), key })
    }

    #[test]
    fn a_place_serves_the_change_of_its_version_and_tenant_once() {
        use punctual_core::ids::NodeId;
        use punctual_core::state::By;
        use punctual_core::time::Timestamp;
        use punctual_core::trail::Actor;

        let (places, lane, id) = (HeldPlaces::default(), lane(), TaskId::new());
        let by = By { now: Timestamp::from_millis(1), node: NodeId::new(1), actor: Actor::Node };
        let complete = |tenant, token| Change::complete_held(tenant, token, None, &by);
        let takes = |change: Change| {
            places.note([(id, place(&lane))]);
            places.take([(id, &change)]) == [Some(Tid::first_of(7))]
        };
        assert!(takes(complete("a", 3)));
        assert!(!takes(complete("a", 2)), "an older token");
        assert!(!takes(complete("b", 3)), "another tenant's");
        assert_eq!(places.take([(id, &complete("a", 3))]), [None], "it was taken");
    }

    #[test]
    fn the_places_are_bounded() {
        let (places, lane) = (HeldPlaces::default(), lane());
        places.note((0..3 * GENERATION).map(|_| (TaskId::new(), place(&lane))));
        let generations = places.generations.lock();
        assert!(generations.young.len() + generations.old.len() <= 2 * GENERATION);
    }
}
