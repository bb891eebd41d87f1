//! A hierarchical timing wheel: which keys are due, in order, and when to look next.
//!
//! The scheduler's dispatcher calls it; the keys are lanes, one entry each, so its memory is bounded by
//! the number of lanes however many tasks they hold.
//!
//! Read an instant as a number of 6-bit digits. A level is a digit, a slot a value of that digit, and
//! `position` is the latest instant the wheel was advanced to. The invariant: an entry lies at the highest
//! digit in which its due instant differs from `position`, in the slot named by its own digit there. So every
//! entry of a lower level is due before every entry of a higher one, level 0 is exact to the millisecond,
//! and time passes by clearing whole runs of slots. Two chains hold what has no slot: `LATE`, due at or
//! before `position`, and `BEYOND`, due after the end of the top level (2^36 ms, some two years).
//!
//! It must not know what time it is, nor do I/O: every instant comes from the caller.

mod chains;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;

use punctual_core::time::Timestamp;

use self::chains::{Chains, Entry};

const LEVELS: usize = 6;
const DIGIT_BITS: usize = 6;
const DIGIT_MASK: u64 = (1 << DIGIT_BITS) - 1;
const SLOTS: usize = 1 << DIGIT_BITS;
const TOP_BITS: usize = LEVELS * DIGIT_BITS;

/// Chains `0..LATE` are the slots, level by level.
const LATE: usize = LEVELS * SLOTS;
const BEYOND: usize = LATE + 1;
const CHAINS: usize = BEYOND + 1;

/// Keys, each with the one instant at which it is due.
#[derive(Debug)]
pub struct Wheel<K> {
    position: u64,
    /// For each level, a bit for each slot that holds an entry.
    occupied: [u64; LEVELS],
    /// Not later than any entry of `LATE`; exact until an entry leaves other than by [`Wheel::advance`].
    late_floor: u64,
    /// The same for `BEYOND`.
    beyond_floor: u64,
    chains: Chains<K>,
    index: HashMap<K, usize>,
    schedules: u64,
}

impl<K: Copy + Eq + Hash> Wheel<K> {
    /// An empty wheel that stands at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self {
            position: tick(now),
            occupied: [0; LEVELS],
            late_floor: 0,
            beyond_floor: 0,
            chains: Chains::new(CHAINS),
            index: HashMap::new(),
            schedules: 0,
        }
    }

    /// Sets the instant at which `key` is due, moving its entry if it has one.
    pub fn schedule(&mut self, key: K, due: Timestamp) {
        let due = tick(due);
        let known = self.index.get(&key).copied();
        if known.is_some_and(|at| self.chains.entry(at).due == due) {
            return;
        }
        self.schedules += 1;
        let entry = Entry { key, due, order: self.schedules };
        let at = if let Some(at) = known {
            self.unlink(at);
            self.chains.replace(at, entry);
            at
        } else {
            let at = self.chains.insert(entry);
            self.index.insert(key, at);
            at
        };
        self.link(at);
    }

    /// Forgets `key`; false if it was not scheduled.
    pub fn cancel(&mut self, key: K) -> bool {
        let Some(at) = self.index.remove(&key) else { return false };
        self.unlink(at);
        self.chains.free(at);
        true
    }

    /// Removes every key due at or before `now` and appends them to `fired` in order of their due instants; keys
    /// due at the same instant come in the order in which they were given it.
    ///
    /// A `now` before an earlier one is taken at its word, and `position` stays: nothing fires that is
    /// not due by the clock as it stands now. The cost is that of the entries passed over and a sort of those that
    /// fire, however long the time between.
    pub fn advance(&mut self, now: Timestamp, fired: &mut Vec<K>) {
        let now = tick(now);
        let from = self.position;
        self.position = from.max(now);
        let mut due = Vec::new();
        if now >= self.late_floor {
            self.drain(LATE, now, &mut due);
        }
        // From the bottom up, so that an entry that moves down a level is not met again.
        for level in 0..LEVELS {
            let mut passed = self.occupied[level] & passed_slots(level, from, self.position);
            while passed != 0 {
                self.drain(level * SLOTS + passed.trailing_zeros() as usize, now, &mut due);
                passed &= passed - 1;
            }
        }
        if self.position >> TOP_BITS >= self.beyond_floor >> TOP_BITS {
            self.drain(BEYOND, now, &mut due);
        }
        due.sort_unstable_by_key(|entry| (entry.due, entry.order));
        fired.extend(due.iter().map(|entry| entry.key));
    }

    /// When to advance next: never later than the next due instant, `None` if there is none.
    ///
    /// An advance to this instant either fires or moves the earliest entry down a level, so a caller that sleeps
    /// until it wakes at most once for each level (and `BEYOND`) before the entry fires. An earliest entry of `LATE`
    /// or `BEYOND` that was cancelled or moved can cost one wake-up more.
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        if !self.chains.is_empty(LATE) {
            return Some(instant(self.late_floor));
        }
        if let Some(level) = self.occupied.iter().position(|&slots| slots != 0) {
            let slot = u64::from(self.occupied[level].trailing_zeros());
            let shift = level * DIGIT_BITS;
            let turn = self.position >> (shift + DIGIT_BITS);
            return Some(instant((turn << DIGIT_BITS | slot) << shift));
        }
        (!self.chains.is_empty(BEYOND)).then(|| instant(self.beyond_floor >> TOP_BITS << TOP_BITS))
    }

    /// When `key` is due.
    pub fn due_of(&self, key: K) -> Option<Timestamp> {
        self.index.get(&key).map(|&at| instant(self.chains.entry(at).due))
    }

    /// How many keys are scheduled.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether no key is scheduled.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Empties `chain`: what is due goes to `due`, the rest to its place as seen from the present position.
    fn drain(&mut self, chain: usize, now: u64, due: &mut Vec<Entry<K>>) {
        let mut rest = self.chains.take(chain);
        self.mark(chain);
        while let Some(at) = rest {
            rest = self.chains.next(at);
            let entry = *self.chains.entry(at);
            if entry.due <= now {
                self.index.remove(&entry.key);
                self.chains.free(at);
                due.push(entry);
            } else {
                self.link(at);
            }
        }
    }

    fn link(&mut self, at: usize) {
        let due = self.chains.entry(at).due;
        let chain = self.chain_of(due);
        let first = self.chains.is_empty(chain);
        match chain {
            LATE => self.late_floor = if first { due } else { self.late_floor.min(due) },
            BEYOND => self.beyond_floor = if first { due } else { self.beyond_floor.min(due) },
            _ => {}
        }
        self.chains.link(at, chain);
        self.mark(chain);
    }

    fn unlink(&mut self, at: usize) {
        let chain = self.chains.unlink(at);
        self.mark(chain);
    }

    /// Brings the bit of a slot in line with its chain.
    fn mark(&mut self, chain: usize) {
        if chain < LATE {
            let bit = 1 << (chain % SLOTS);
            let slots = &mut self.occupied[chain / SLOTS];
            *slots = if self.chains.is_empty(chain) { *slots & !bit } else { *slots | bit };
        }
    }

    fn chain_of(&self, due: u64) -> usize {
        if due <= self.position {
            return LATE;
        }
        let level = (due ^ self.position).ilog2() as usize / DIGIT_BITS;
        if level < LEVELS { level * SLOTS + digit(due, level) } else { BEYOND }
    }
}

/// The slots of `level` whose time begins after `from` and not after `to`, as bits. A slot not after `from`
/// may be among them: the invariant keeps it empty.
fn passed_slots(level: usize, from: u64, to: u64) -> u64 {
    let turn = (level + 1) * DIGIT_BITS;
    if from >> turn == to >> turn {
        // All up to the digit of `to`; shifted twice because a shift by 64 is none.
        !(u64::MAX << digit(to, level) << 1)
    } else {
        u64::MAX
    }
}

fn digit(tick: u64, level: usize) -> usize {
    (tick >> (level * DIGIT_BITS) & DIGIT_MASK) as usize
}

/// Milliseconds as an unsigned number in the same order, so that an instant before 1970 has digits too.
fn tick(at: Timestamp) -> u64 {
    at.as_millis().cast_unsigned() ^ (1 << 63)
}

fn instant(tick: u64) -> Timestamp {
    Timestamp::from_millis((tick ^ (1 << 63)).cast_signed())
}
