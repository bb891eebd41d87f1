//! From where on a lane is looked through.
//!
//! What was claimed leaves dead entries in the index until PostgreSQL has cleaned up, which
//! it cannot while anybody has an old transaction open; a claim that began at the front would
//! walk over all of them. So this process remembers how far it has taken from each lane and
//! begins there. A mark goes back when something is put before it, by this process or, as a
//! notification tells, by another. One that stands too far ahead all the same (a row that was
//! skipped because somebody had it, and gave it back) is found out when the lane is looked
//! through from its front, every few seconds: it delays, and loses nothing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A place in a lane: due instant and number of submission.
pub(crate) type Place = (i64, i64);

/// Before everything.
pub(crate) const FRONT: Place = (i64::MIN, i64::MIN);

/// Behind everything.
const END: Place = (i64::MAX, i64::MAX);

/// How often a lane is looked through from its front.
const AGE: Duration = Duration::from_secs(2);

/// A look from the front may take up to one part in so many of the time, where it takes long.
const SHARE: u32 = 20;

/// More lanes than this are not remembered.
const MOST: usize = 100_000;

/// How far each lane has been taken from (see the module). One claim is under way at a time.
#[derive(Default)]
pub(crate) struct Marks(Mutex<HashMap<i64, Mark>>);

struct Mark {
    /// Nothing waits up to here.
    place: Place,
    /// The first of what was put in since the last claim began, which may not have seen it.
    lowest: Place,
    /// When the lane is to be looked through from its front again.
    again: Instant,
}

/// Where a claim begins in a lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    /// Strictly after this.
    pub place: Place,
    is_front: bool,
}

impl Marks {
    /// A claim is about to look into a lane: where it begins.
    pub(crate) fn begin(&self, lane: i64) -> Begin {
        let mut lanes = self.0.lock();
        if lanes.len() >= MOST && !lanes.contains_key(&lane) {
            lanes.clear();
        }
        let now = Instant::now();
        let mark = lanes.entry(lane).or_insert(Mark { place: FRONT, lowest: END, again: now });
        mark.lowest = END;
        let is_front = mark.again <= now;
        Begin { place: if is_front { FRONT } else { mark.place }, is_front }
    }

    /// A claim that began so has taken everything up to `to`, if it took anything, and took so long.
    pub(crate) fn taken(&self, lane: i64, begin: Begin, to: Option<Place>, took: Duration) {
        let mut lanes = self.0.lock();
        // Forgotten meanwhile: what it saw may be wrong.
        let Some(mark) = lanes.get_mut(&lane) else { return };
        if let Some(to) = to {
            mark.place = to;
        }
        mark.place = mark.place.min(mark.lowest);
        if begin.is_front {
            mark.again = Instant::now() + AGE.max(took * SHARE);
        }
    }

    /// Something waits in these lanes that is due then.
    pub(crate) fn put(&self, waiting: impl IntoIterator<Item = (i64, i64)>) {
        let mut lanes = self.0.lock();
        for (lane, due_at) in waiting {
            if let Some(mark) = lanes.get_mut(&lane) {
                let before = (due_at, i64::MIN);
                mark.place = mark.place.min(before);
                mark.lowest = mark.lowest.min(before);
            }
        }
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&self) {
        self.0.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOOK: Duration = Duration::ZERO;

    #[test]
    fn a_claim_begins_where_the_last_one_ended() {
        let marks = Marks::default();
        let first = marks.begin(1);
        assert_eq!(first.place, FRONT);
        marks.taken(1, first, Some((5, 7)), TOOK);
        assert_eq!(marks.begin(1).place, (5, 7));
        assert_eq!(marks.begin(2).place, FRONT);
    }

    #[test]
    fn what_is_put_before_the_mark_moves_it_back() {
        let marks = Marks::default();
        marks.taken(1, marks.begin(1), Some((5, 7)), TOOK);
        marks.put([(1, 9)]);
        assert_eq!(marks.begin(1).place, (5, 7));
        marks.put([(1, 5)]);
        assert_eq!(marks.begin(1).place, (5, i64::MIN));
    }

    #[test]
    fn what_is_put_while_a_claim_looks_is_not_passed_over() {
        let marks = Marks::default();
        marks.taken(1, marks.begin(1), Some((5, 7)), TOOK);
        let begin = marks.begin(1);
        marks.put([(1, 6)]);
        marks.taken(1, begin, Some((8, 9)), TOOK);
        assert_eq!(marks.begin(1).place, (6, i64::MIN));
    }

    #[test]
    fn what_was_forgotten_while_a_claim_looked_stays_so() {
        let marks = Marks::default();
        let begin = marks.begin(1);
        marks.forget();
        marks.taken(1, begin, Some((8, 9)), TOOK);
        assert_eq!(marks.begin(1).place, FRONT);
    }
}
