//! Scan cursors: where the next claim on a lane begins.
//!
//! Claimed tasks leave dead entries in the index until PostgreSQL has vacuumed, which it cannot do
//! while an old transaction is open. A claim that began at the front would walk over all of them.
//! So each process remembers how far it has taken from a lane and begins there.
//!
//! A cursor goes back when a task is put before it, by this process or, after a notification, by
//! another. A cursor may still be too far ahead, for example after a skipped row was given back.
//! `audit` finds that by reading the fronts of the lanes every few seconds: such a task is late,
//! never lost. A claim with a lower bound of `due_at` has a cursor of its own.

pub(crate) mod audit;

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A place in a lane: due instant and number of submission.
pub(crate) type Place = (i64, i64);

/// The tasks of a lane that are due from an instant on; mostly all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LaneRange {
    pub lane: i64,
    pub from: i64,
}

impl LaneRange {
    /// Before everything in it.
    pub(crate) const fn front(self) -> Place {
        (self.from, i64::MIN)
    }
}

/// Behind everything.
const END: Place = (i64::MAX, i64::MAX);

/// How often the front of a lane is audited if tasks were taken from it, and if it is quiet.
const BUSY_AUDIT_INTERVAL: Duration = Duration::from_secs(2);
const QUIET_AUDIT_INTERVAL: Duration = Duration::from_secs(30);

/// Slow audits of a lane take at most 1/`AUDIT_SHARE` of the time.
const AUDIT_SHARE: u32 = 50;

/// Lanes whose audit takes longer are audited one by one.
const QUICK_AUDIT_MAX: Duration = Duration::from_millis(50);

/// The maximum number of lanes, and of cursors for one lane.
const LANES_MAX: usize = 100_000;
const CURSORS_PER_LANE_MAX: usize = 4;

/// The cursors of all lanes (see the module). One claim is under way at a time.
#[derive(Default)]
pub(crate) struct ScanCursors {
    lanes: Mutex<HashMap<i64, LaneCursors>>,
    doubted: Notify,
}

/// The cursors of a lane, and its audits.
struct LaneCursors {
    cursors: Vec<ScanCursor>,
    /// Tasks were taken since its last audit.
    is_busy: bool,
    /// A cursor may have passed a waiting task.
    is_doubtful: bool,
    /// When its front was last audited, and how long that took.
    audited_at: Instant,
    took: Duration,
}

struct ScanCursor {
    range: LaneRange,
    /// Nothing waits up to here.
    place: Place,
    /// The first task that was put in since the last claim began, which may not have seen it.
    lowest: Place,
}

impl ScanCursor {
    /// A task waits right behind this place.
    fn go_back(&mut self, before: Place) {
        self.place = self.place.min(before);
        self.lowest = self.lowest.min(before);
    }
}

impl LaneCursors {
    fn new() -> Self {
        let (audited_at, took) = (Instant::now(), Duration::ZERO);
        Self { cursors: Vec::new(), is_busy: false, is_doubtful: false, audited_at, took }
    }

    fn audit_is_due(&self, now: Instant) -> bool {
        let pause = match (self.is_doubtful, self.is_busy) {
            (true, _) => Duration::ZERO,
            (false, true) => BUSY_AUDIT_INTERVAL,
            (false, false) => QUIET_AUDIT_INTERVAL,
        };
        let is_ahead = self.cursors.iter().any(|cursor| cursor.place > cursor.range.front());
        is_ahead && now >= self.audited_at + pause.max(self.took * AUDIT_SHARE)
    }
}

impl ScanCursors {
    /// Begins a claim on a lane. Returns the place behind which it reads.
    pub(crate) fn begin(&self, range: LaneRange) -> Place {
        let mut lanes = self.lanes.lock();
        if lanes.len() >= LANES_MAX && !lanes.contains_key(&range.lane) {
            lanes.clear();
        }
        let cursors = &mut lanes.entry(range.lane).or_insert_with(LaneCursors::new).cursors;
        let known = cursors.iter().position(|cursor| cursor.range == range);
        let at = known.unwrap_or_else(|| {
            if cursors.len() == CURSORS_PER_LANE_MAX {
                cursors.remove(0);
            }
            cursors.push(ScanCursor { range, place: range.front(), lowest: END });
            cursors.len() - 1
        });
        cursors[at].lowest = END;
        cursors[at].place.max(range.front())
    }

    /// A claim has taken everything up to `to`, if it took anything.
    pub(crate) fn taken(&self, range: LaneRange, to: Option<Place>) {
        let mut lanes = self.lanes.lock();
        // Forgotten meanwhile: its cursor may be wrong.
        let (Some(known), Some(to)) = (lanes.get_mut(&range.lane), to) else { return };
        known.is_busy = true;
        if let Some(cursor) = known.cursors.iter_mut().find(|cursor| cursor.range == range) {
            cursor.place = to.min(cursor.lowest);
        }
    }

    /// Where a read of a lane begins that claims nothing.
    pub(crate) fn place(&self, lane: i64) -> Place {
        let all = LaneRange { lane, from: i64::MIN };
        let lanes = self.lanes.lock();
        let cursor = lanes.get(&lane).and_then(|known| known.cursors.iter().find(|cursor| cursor.range == all));
        cursor.map_or(all.front(), |cursor| cursor.place)
    }

    /// Moves cursors back: tasks wait in these lanes, due at these instants.
    pub(crate) fn put(&self, waiting: impl IntoIterator<Item = (i64, i64)>) {
        let mut lanes = self.lanes.lock();
        for (lane, due_at) in waiting {
            if let Some(known) = lanes.get_mut(&lane) {
                known.cursors.iter_mut().for_each(|cursor| cursor.go_back((due_at, i64::MIN)));
            }
        }
    }

    /// Moves cursors back to the first waiting task of a lane.
    pub(crate) fn found(&self, lane: i64, first: Place) {
        if let Some(known) = self.lanes.lock().get_mut(&lane) {
            known.cursors.iter_mut().for_each(|cursor| cursor.go_back((first.0, first.1.saturating_sub(1))));
        }
    }

    /// Asks for an audit of these lanes: their cursors may be too far ahead.
    pub(crate) fn doubt(&self, doubtful: impl IntoIterator<Item = i64>) {
        let mut lanes = self.lanes.lock();
        for lane in doubtful {
            if let Some(known) = lanes.get_mut(&lane) {
                known.is_doubtful = true;
            }
        }
        drop(lanes);
        self.doubted.notify_one();
    }

    /// Asks for an audit of every lane.
    pub(crate) fn doubt_all(&self) {
        self.lanes.lock().values_mut().for_each(|known| known.is_doubtful = true);
        self.doubted.notify_one();
    }

    /// Returns once an audit was asked for.
    pub(crate) async fn wait_for_doubt(&self) {
        self.doubted.notified().await;
    }

    /// The lanes to audit now, up to `most` in each group. Slow lanes are alone.
    pub(crate) fn to_audit(&self, most: usize) -> Vec<Vec<i64>> {
        let now = Instant::now();
        let mut lanes = self.lanes.lock();
        let (mut quick, mut slow) = (Vec::new(), Vec::new());
        for (lane, known) in lanes.iter_mut().filter(|(_, known)| known.audit_is_due(now)) {
            // Later changes ask for another audit.
            (known.is_busy, known.is_doubtful) = (false, false);
            if known.took > QUICK_AUDIT_MAX {
                slow.push(vec![*lane]);
            } else {
                quick.push(*lane);
            }
        }
        quick.chunks(most).map(<[i64]>::to_vec).chain(slow).collect()
    }

    /// Records an audit of these lanes.
    pub(crate) fn audited(&self, audited: &[i64], took: Duration) {
        let mut lanes = self.lanes.lock();
        for lane in audited {
            if let Some(known) = lanes.get_mut(lane) {
                (known.audited_at, known.took) = (Instant::now(), took);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRONT: Place = (i64::MIN, i64::MIN);
    const ONE: LaneRange = LaneRange { lane: 1, from: i64::MIN };
    const TWO: LaneRange = LaneRange { lane: 2, from: i64::MIN };

    fn take(cursors: &ScanCursors, range: LaneRange, to: Place) {
        cursors.begin(range);
        cursors.taken(range, Some(to));
    }

    #[test]
    fn a_claim_begins_where_the_last_one_ended() {
        let cursors = ScanCursors::default();
        assert_eq!(cursors.begin(ONE), FRONT);
        cursors.taken(ONE, Some((5, 7)));
        assert_eq!((cursors.begin(ONE), cursors.place(1)), ((5, 7), (5, 7)));
        cursors.taken(ONE, None);
        assert_eq!(cursors.begin(ONE), (5, 7));
        assert_eq!(cursors.begin(TWO), FRONT);
    }

    #[test]
    fn a_task_before_the_cursor_moves_it_back() {
        let cursors = ScanCursors::default();
        take(&cursors, ONE, (5, 7));
        cursors.put([(1, 9)]);
        assert_eq!(cursors.begin(ONE), (5, 7));
        cursors.put([(1, 5)]);
        assert_eq!(cursors.begin(ONE), (5, i64::MIN));
    }

    #[test]
    fn a_task_put_in_during_a_claim_is_not_passed() {
        let cursors = ScanCursors::default();
        take(&cursors, ONE, (5, 7));
        cursors.begin(ONE);
        cursors.put([(1, 6)]);
        cursors.taken(ONE, Some((8, 9)));
        assert_eq!(cursors.begin(ONE), (6, i64::MIN));
    }

    #[test]
    fn a_task_found_at_the_front_moves_the_cursor_back() {
        let cursors = ScanCursors::default();
        take(&cursors, ONE, (5, 7));
        cursors.found(1, (6, 1));
        assert_eq!(cursors.begin(ONE), (5, 7));
        cursors.found(1, (5, 3));
        assert_eq!(cursors.begin(ONE), (5, 2));
    }

    #[test]
    fn a_claim_from_an_instant_on_has_its_own_cursor() {
        let cursors = ScanCursors::default();
        let late = LaneRange { from: 50, ..ONE };
        assert_eq!(cursors.begin(late), (50, i64::MIN));
        cursors.taken(late, Some((60, 7)));
        assert_eq!(cursors.begin(late), (60, 7));
        assert_eq!((cursors.begin(ONE), cursors.place(1)), (FRONT, FRONT));
        cursors.put([(1, 55)]);
        assert_eq!(cursors.begin(late), (55, i64::MIN));
        cursors.put([(1, 5)]);
        assert_eq!(cursors.begin(late), (50, i64::MIN));
    }

    #[test]
    fn a_lane_has_few_cursors() {
        let cursors = ScanCursors::default();
        for from in 0..100 {
            take(&cursors, LaneRange { lane: 1, from }, (from, 7));
        }
        assert_eq!(cursors.lanes.lock()[&1].cursors.len(), CURSORS_PER_LANE_MAX);
        assert_eq!(cursors.begin(LaneRange { lane: 1, from: 99 }), (99, 7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_doubtful_cursor_is_audited_at_once() {
        let cursors = ScanCursors::default();
        take(&cursors, ONE, (5, 7));
        take(&cursors, TWO, (5, 7));
        cursors.doubt([2, 3]);
        cursors.wait_for_doubt().await;
        assert_eq!(cursors.to_audit(10), [[2]]);
        cursors.doubt_all();
        cursors.wait_for_doubt().await;
        assert_eq!(cursors.to_audit(1).len(), 2);
        assert_eq!(cursors.begin(ONE), (5, 7), "it is used until the audit");
    }

    #[tokio::test(start_paused = true)]
    async fn audits_keep_their_intervals() {
        let cursors = ScanCursors::default();
        take(&cursors, ONE, (5, 7));
        cursors.begin(TWO);
        assert!(cursors.to_audit(10).is_empty(), "not yet");
        tokio::time::advance(BUSY_AUDIT_INTERVAL).await;
        assert_eq!(cursors.to_audit(10), [[1]], "nothing was taken from the other");
        cursors.audited(&[1], Duration::ZERO);
        tokio::time::advance(BUSY_AUDIT_INTERVAL).await;
        assert!(cursors.to_audit(10).is_empty(), "it is quiet");
        tokio::time::advance(QUIET_AUDIT_INTERVAL).await;
        assert_eq!(cursors.to_audit(10), [[1]]);
        cursors.taken(ONE, Some((8, 9)));
        cursors.audited(&[1], BUSY_AUDIT_INTERVAL);
        tokio::time::advance(BUSY_AUDIT_INTERVAL * (AUDIT_SHARE - 1)).await;
        assert!(cursors.to_audit(10).is_empty(), "slow audits are rare");
        tokio::time::advance(BUSY_AUDIT_INTERVAL).await;
        assert_eq!(cursors.to_audit(10), [[1]]);
    }
}
