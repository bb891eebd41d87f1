//! Gives the due tasks of lanes to claims, in order: pure, the claims wait while more is read.
//!
//! The claims of a transaction are made one after the other, each with its lanes in its
//! order and within its limits and those of its queues, and with a bound from its instant on. What has expired is not given out. When a lane has run out of
//! rows that were read, and may have more, the picker stops and says what to read; it goes on
//! where it stopped.

use std::collections::{HashMap, HashSet, VecDeque};

use punctual_core::lane::LaneId;
use punctual_core::store::Claim;
use punctual_core::task::{Task, limits};
use punctual_core::time::Timestamp;
use uuid::Uuid;

use super::limits::Allowances;
use super::scan_cursors::{LaneRange, Place};
use super::tid::Tid;
use crate::claims::{self, MOST_EXPIRED};
use crate::columns::Unreadable;

/// How many rows are read at once behind expired ones.
const BEHIND_EXPIRED: usize = 256;

/// A due task, as it was read and locked.
#[derive(Debug)]
pub(crate) struct Due {
    pub id: Uuid,
    pub lane: i64,
    /// Which look of a need it was read for.
    pub look: usize,
    pub place: Place,
    pub tid: Tid,
    /// How large its payload is.
    pub bytes: i32,
    pub task: Result<Task, Unreadable>,
}

/// A payload that is larger than this is read when it is known that its task is taken.
pub(crate) const SMALL_BYTES: i32 = 16 << 10;

impl Due {
    /// Whether its payload was not read.
    pub(crate) fn is_large(&self) -> bool {
        self.bytes > SMALL_BYTES
    }
}

/// What is to be read: lanes and how many of each at the most, and how many in all.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub looks: Vec<(LaneRange, usize)>,
    pub limit: usize,
}

/// A lane, as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    rows: VecDeque<Due>,
    is_at_end: bool,
    /// The last row that was read.
    pub read: Option<Place>,
    /// The last row that was given, or had expired.
    pub used: Option<Place>,
}

/// A row and the claim that it was picked for.
#[derive(Debug)]
pub(crate) struct Picked {
    pub claim: usize,
    pub due: Due,
}

/// Where the picking stands.
pub(crate) struct Picker<'a> {
    claims: &'a [Claim],
    now: Timestamp,
    pub streams: HashMap<LaneRange, Stream>,
    at: PickCursor,
    pub taken: Vec<Picked>,
    pub expired: Vec<Picked>,
    /// Rows that do not hold what was written to them.
    pub unreadable: Vec<(Uuid, &'static str)>,
    /// What each claim looked at.
    pub visited: Vec<Vec<LaneRange>>,
    /// Whether a claim is given nothing.
    refused: Vec<bool>,
    /// What restricted queues let through.
    pub allowances: Allowances,
    /// What was picked, where it could be read twice: by claims with and without a bound, from one lane.
    seen: Option<HashSet<Uuid>>,
}

/// The claim and the lane under way, and what the claim was given.
#[derive(Clone, Copy, Default)]
struct PickCursor {
    claim: usize,
    lane: usize,
    given: usize,
    from_lane: usize,
    bytes: usize,
    expired: usize,
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
            unreadable: Vec::new(),
            visited: vec![Vec::new(); claims.len()],
            refused: vec![false; claims.len()],
            allowances: Allowances::default(),
            seen: None,
        }
    }

    /// The time that it goes by from now on, and what restricted queues let through.
    pub(crate) fn restrict(&mut self, now: Timestamp, allowances: Allowances) {
        (self.now, self.allowances) = (now, allowances);
    }

    /// What to read at first: the lanes of all claims in the order in which they are looked at.
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

    /// Takes in what was read of what was needed: look by look in that order, and cut off at the limit.
    pub(crate) fn take_in(&mut self, need: &Need, rows: Vec<Due>) {
        let cut = (rows.len() >= need.limit).then(|| rows.last().map(|due| due.look)).flatten();
        let mut of_look: HashMap<usize, Vec<Due>> = HashMap::new();
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

    /// By when is due what is read of a lane: by now, unless a claim looks ahead.
    pub(crate) fn due_by(&self, look: LaneRange, now: Timestamp) -> Timestamp {
        let at_it = |claim: &&Claim| claim.lanes.iter().any(|(lane, _)| range(claim, *lane) == look);
        let of = |claim: &Claim| claims::due_by(&claim.claimant, now);
        let ahead = self.claims.iter().filter(|claim| of(claim) > now);
        ahead.filter(at_it).map(of).max().unwrap_or(now)
    }

    /// This claim is given nothing, and looks at no lane.
    pub(crate) fn refuse(&mut self, claim: usize) {
        self.refused[claim] = true;
    }

    /// What was read and is given to nobody, if a claim was refused: the first of each lane, and when it is due.
    pub(crate) fn left(&self) -> Vec<(i64, i64)> {
        let any = self.refused.contains(&true);
        let first = |(range, stream): (&LaneRange, &Stream)| Some((range.lane, stream.rows.front()?.place.0));
        self.streams.iter().filter(|_| any).filter_map(first).collect()
    }

    /// Goes on as far as it can; what has to be read, or none at the end.
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
                let is_full = self.at.bytes >= limits::CLAIM_PAYLOAD || self.at.expired >= MOST_EXPIRED;
                let stream = self.streams.entry(range).or_default();
                if room == 0 || is_full || (stream.rows.is_empty() && stream.is_at_end) {
                    self.at.lane += 1;
                    self.at.from_lane = 0;
                } else if let Some(due) = stream.rows.pop_front() {
                    stream.used = Some(due.place);
                    self.pick(due);
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
        let least = if self.at.expired > 0 { BEHIND_EXPIRED } else { 1 };
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

    fn pick(&mut self, due: Due) {
        let PickCursor { claim, .. } = self.at;
        if self.seen.as_mut().is_some_and(|seen| !seen.insert(due.id)) {
            return;
        }
        match &due.task {
            Err(Unreadable(column)) => self.unreadable.push((due.id, column)),
            Ok(task) if task.has_expired(self.now.max(task.due_at)) => {
                self.at.expired += 1;
                self.expired.push(Picked { claim, due });
            }
            Ok(_) => {
                self.at.bytes += usize::try_from(due.bytes).unwrap_or_default();
                self.at.given += 1;
                self.at.from_lane += 1;
                self.allowances.take(due.lane);
                self.taken.push(Picked { claim, due });
            }
        }
    }
}

/// What a claim looks at in a lane.
fn range(claim: &Claim, lane: LaneId) -> LaneRange {
    LaneRange { lane: lane.number(), from: claims::bound(&claim.claimant) }
}
