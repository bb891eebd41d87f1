//! Distributes due tasks to the claims of a transaction. Pure: it says what to read next.
//!
//! The claims are served one after the other, each with its lanes in its order, within its own
//! limits and those of its queues, and from its lower bound of `due_at` on. Expired tasks are not
//! given out, a task whose concurrency key is full is parked, and a task that gives way to an
//! earlier one of its ordering key is left. Where a lane may have more rows than were read, the
//! picker stops and says what to read; then it continues where it stopped.

use std::collections::{HashMap, HashSet, VecDeque};

use punctual_core::lane::LaneId;
use punctual_core::store::Claim;
use punctual_core::task::{Task, limits};
use punctual_core::time::Timestamp;
use uuid::Uuid;

use crate::claims::{self, EXPIRED_MAX};
use crate::columns::Unreadable;
use crate::postgres::claim::scan_cursors::{LaneRange, Place};
use crate::postgres::limits::Allowances;
use crate::postgres::tid::Tid;

/// How many rows are read at once behind expired, parked and left ones.
const BEHIND_EXPIRED: usize = 256;

/// A due task, as it was read and locked.
#[derive(Debug)]
pub(crate) struct DueRow {
    pub id: Uuid,
    pub lane: i64,
    /// The index of the look that it was read for.
    pub look: usize,
    pub place: Place,
    pub tid: Tid,
    /// The size of its payload.
    pub bytes: i32,
    /// An earlier task of its ordering key waits, and the resolver has yet to decide.
    pub gives_way: bool,
    /// The name of its concurrency key.
    pub concurrency: Option<Uuid>,
    pub task: Result<Task, Unreadable>,
}

/// Larger payloads are read once it is known that their tasks are claimed.
pub(crate) const SMALL_BYTES: i32 = 16 << 10;

impl DueRow {
    /// Whether its payload was not read.
    pub(crate) fn is_large(&self) -> bool {
        self.bytes > SMALL_BYTES
    }
}

/// What to read: lanes with a maximum each, and a maximum in all.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub looks: Vec<(LaneRange, usize)>,
    pub limit: usize,
}

/// The rows of a lane that were read.
#[derive(Debug, Default)]
pub(crate) struct LaneRows {
    rows: VecDeque<DueRow>,
    is_at_end: bool,
    /// The last row that was read.
    pub read: Option<Place>,
    /// The last row that was given out or parked, or had expired.
    used: Option<Place>,
    /// The first row that was left because it gives way.
    left: Option<Place>,
}

impl LaneRows {
    /// The last place up to which no row waits; none if no row was used.
    pub(crate) fn done(&self) -> Option<Place> {
        let before = self.left.map(|(due_at, seq)| (due_at, seq.saturating_sub(1)));
        self.used.map(|used| before.map_or(used, |before| used.min(before)))
    }

    /// When the first row is due that was read and not used.
    fn first_left(&self) -> Option<i64> {
        self.left.or_else(|| self.rows.front().map(|due| due.place)).map(|(due_at, _)| due_at)
    }
}

/// A row and the claim that it was picked for.
#[derive(Debug)]
pub(crate) struct PickedRow {
    pub claim: usize,
    pub due: DueRow,
}

/// The state of the distribution.
pub(crate) struct Picker<'a> {
    claims: &'a [Claim],
    now: Timestamp,
    pub streams: HashMap<LaneRange, LaneRows>,
    at: PickCursor,
    pub taken: Vec<PickedRow>,
    pub expired: Vec<PickedRow>,
    /// Rows whose concurrency keys are full.
    pub parked: Vec<DueRow>,
    /// Unreadable rows, each with its column at fault.
    pub unreadable: Vec<(Uuid, &'static str)>,
    /// The lanes that each claim visited.
    pub visited: Vec<Vec<LaneRange>>,
    /// The claims that get nothing.
    refused: Vec<bool>,
    /// How much may be taken from limited queues.
    pub allowances: Allowances,
    /// The picked ids, where claims with and without a bound may read the same row twice.
    seen: Option<HashSet<Uuid>>,
}

/// The claim and the lane under way, and how much the claim has got.
#[derive(Clone, Copy, Default)]
struct PickCursor {
    claim: usize,
    lane: usize,
    given: usize,
    from_lane: usize,
    bytes: usize,
    /// How many rows had expired, were parked, or were left: they bound the claim, too.
    passed: usize,
}

impl<'a> Picker<'a> {
    pub(crate) fn new(claims: &'a [Claim], now: Timestamp) -> Self {
        Self {
            claims,
            now,
            streams: HashMap::new(),
            at: PickCursor::default(),
            taken: Vec::new(),
            expired: Vec::new(),
            parked: Vec::new(),
            unreadable: Vec::new(),
            visited: vec![Vec::new(); claims.len()],
            refused: vec![false; claims.len()],
            allowances: Allowances::default(),
            seen: None,
        }
    }

    /// Sets the time, and how much may be taken from limited queues.
    pub(crate) fn restrict(&mut self, now: Timestamp, allowances: Allowances) {
        (self.now, self.allowances) = (now, allowances);
    }

    /// The first read: the lanes of all claims in the order of their visits.
    pub(crate) fn first_need(&mut self) -> Need {
        let mut looks: Vec<(LaneRange, usize)> = Vec::new();
        let mut place: HashMap<LaneRange, usize> = HashMap::new();
        for claim in self.claims {
            for (lane, most) in &claim.lanes {
                let range = range(claim, *lane);
                let at = *place.entry(range).or_insert_with(|| {
                    looks.push((range, 0));
                    looks.len() - 1
                });
                looks[at].1 = looks[at].1.saturating_add((*most).min(claim.limit));
            }
        }
        for (range, most) in &mut looks {
            *most = (*most).min(self.allowances.room(range.lane));
        }
        looks.retain(|(_, most)| *most > 0);
        let lanes: HashSet<i64> = looks.iter().map(|(range, _)| range.lane).collect();
        self.seen = (lanes.len() < looks.len()).then(HashSet::new);
        let limit = self.claims.iter().map(|claim| claim.limit).fold(0, usize::saturating_add);
        Need { looks, limit }
    }

    /// Takes in the rows of a read: look by look in that order, cut off at the limit.
    pub(crate) fn take_in(&mut self, need: &Need, rows: Vec<DueRow>) {
        let cut = (rows.len() >= need.limit).then(|| rows.last().map(|due| due.look)).flatten();
        let mut of_look: HashMap<usize, Vec<DueRow>> = HashMap::new();
        for due in rows {
            of_look.entry(due.look).or_default().push(due);
        }
        for (look, (range, most)) in need.looks.iter().enumerate() {
            let rows = of_look.remove(&look).unwrap_or_default();
            let is_cut = cut.is_some_and(|cut| look >= cut);
            let stream = self.streams.entry(*range).or_default();
            stream.is_at_end = !is_cut && rows.len() < *most;
            stream.read = rows.last().map(|due| due.place).or(stream.read);
            stream.rows.extend(rows);
        }
    }

    /// Upper bound of `due_at` for a read: now, unless a claim looks ahead.
    pub(crate) fn due_by(&self, look: LaneRange, now: Timestamp) -> Timestamp {
        let at_it = |claim: &&Claim| claim.lanes.iter().any(|(lane, _)| range(claim, *lane) == look);
        let of = |claim: &Claim| claims::due_by(&claim.claimant, now);
        let ahead = self.claims.iter().filter(|claim| of(claim) > now);
        ahead.filter(at_it).map(of).max().unwrap_or(now)
    }

    /// Gives this claim nothing.
    pub(crate) fn refuse(&mut self, claim: usize) {
        self.refused[claim] = true;
    }

    /// The lanes with rows that were left because they give way, or because a claim was refused,
    /// and when the first of them is due.
    pub(crate) fn left(&self) -> Vec<(i64, i64)> {
        let is_refused = self.refused.contains(&true);
        let some = self.streams.iter().filter(|(_, stream)| is_refused || stream.left.is_some());
        some.filter_map(|(range, stream)| Some((range.lane, stream.first_left()?))).collect()
    }

    /// Continues as far as it can. Returns what to read next; none at the end.
    pub(crate) fn go_on(&mut self) -> Option<Need> {
        while let Some(claim) = self.claims.get(self.at.claim) {
            let lanes: &[_] = if self.refused[self.at.claim] { &[] } else { &claim.lanes };
            while let Some((lane, most)) = lanes.get(self.at.lane) {
                let range = range(claim, *lane);
                let room = (claim.limit - self.at.given).min(most.saturating_sub(self.at.from_lane));
                let room = room.min(self.allowances.room(range.lane));
                if room > 0 && self.visited[self.at.claim].last() != Some(&range) {
                    self.visited[self.at.claim].push(range);
                }
                let is_full = self.at.bytes >= limits::CLAIM_PAYLOAD || self.at.passed >= EXPIRED_MAX;
                let stream = self.streams.entry(range).or_default();
                if room == 0 || is_full || (stream.rows.is_empty() && stream.is_at_end) {
                    self.at.lane += 1;
                    self.at.from_lane = 0;
                } else if let Some(due) = stream.rows.pop_front() {
                    if due.gives_way {
                        stream.left.get_or_insert(due.place);
                        self.at.passed += 1;
                    } else {
                        stream.used = Some(due.place);
                        self.pick(due);
                    }
                } else {
                    return Some(self.need(claim));
                }
            }
            self.at = PickCursor { claim: self.at.claim + 1, ..PickCursor::default() };
        }
        None
    }

    /// What the claim under way may still take from its lanes.
    fn need(&self, claim: &Claim) -> Need {
        let least = if self.at.passed > 0 { BEHIND_EXPIRED } else { 1 };
        let limit = (claim.limit - self.at.given).max(least);
        let mut seen = HashSet::new();
        let mut looks = Vec::new();
        for (lane, most) in &claim.lanes[self.at.lane..] {
            let range = range(claim, *lane);
            let stream = self.streams.get(&range);
            let is_wanted = stream.is_none_or(|stream| stream.rows.is_empty() && !stream.is_at_end);
            let may_be_taken = *most > 0 && self.allowances.room(range.lane) > 0;
            if is_wanted && may_be_taken && seen.insert(*lane) {
                looks.push((range, (*most).min(limit).max(least)));
            }
        }
        Need { looks, limit }
    }

    fn pick(&mut self, due: DueRow) {
        let PickCursor { claim, .. } = self.at;
        if self.seen.as_mut().is_some_and(|seen| !seen.insert(due.id)) {
            return;
        }
        match &due.task {
            Err(Unreadable(column)) => self.unreadable.push((due.id, column)),
            Ok(task) if task.has_expired(self.now.max(task.due_at)) => {
                self.at.passed += 1;
                self.expired.push(PickedRow { claim, due });
            }
            Ok(_) if !self.allowances.take_place(due.lane, due.concurrency) => {
                self.at.passed += 1;
                self.parked.push(due);
            }
            Ok(_) => {
                self.at.bytes += usize::try_from(due.bytes).unwrap_or_default();
                self.at.given += 1;
                self.at.from_lane += 1;
                self.allowances.take(due.lane);
                self.taken.push(PickedRow { claim, due });
            }
        }
    }
}

/// The range of a lane that a claim reads.
fn range(claim: &Claim, lane: LaneId) -> LaneRange {
    LaneRange { lane: lane.number(), from: claims::due_from(&claim.claimant) }
}
