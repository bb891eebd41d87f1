//! Bounds a trail: its first and last steps stay, and one step counts those in between.
//!
//! A claim and an edit shorten a trail that has become too long. They have read the row, so they
//! rewrite what they know. Between two of them a task takes only a few steps, so no trail grows
//! without end, however often a task is released, edited or tried under an open breaker.

use super::{Actor, Entry, Step, Trail, take_entry};

/// A trail with more steps is shortened.
const STEPS_MAX: usize = 200;
/// A trail with more bytes is shortened.
const BYTES_MAX: usize = 256 * 1024;
/// Steps that are kept at the front, at most …
const FIRST_STEPS: usize = 20;
/// … and their bytes.
const FIRST_BYTES: usize = BYTES_MAX / 8;
/// Steps that are kept at the end, at most …
const LAST_STEPS: usize = 100;
/// … and their bytes. The last step is kept, however long it is.
const LAST_BYTES: usize = BYTES_MAX / 2;
/// The fewest bytes of a step. Most trails are too short to need a look at their steps.
const STEP_BYTES_MIN: usize = 10;

/// A step and its encoding, with the length before it.
struct EncodedEntry<'a> {
    entry: Entry<'a>,
    bytes: &'a [u8],
}

impl Trail {
    /// What to keep of a trail that is too long; none if it is short enough. A damaged trail is
    /// left as it is.
    ///
    /// The first and last steps are kept, and the last error. A step [`Step::Omitted`] stands for
    /// the others. No run is kept without its end, except for the last.
    pub fn shortened(&self) -> Option<Trail> {
        if self.0.len() <= STEPS_MAX * STEP_BYTES_MIN {
            return None;
        }
        let entries = self.encoded_entries()?;
        if entries.len() <= STEPS_MAX && self.0.len() <= BYTES_MAX {
            return None;
        }
        let (rest, last) =
            entries.split_at(entries.len() - fitting(entries.iter().rev(), LAST_STEPS, LAST_BYTES).max(1));
        let (first, omitted) = rest.split_at(closed(rest, fitting(rest.iter(), FIRST_STEPS, FIRST_BYTES)));
        let has_error = last.iter().any(|one| one.entry.error().is_some());
        let error = omitted.iter().rposition(|one| !has_error && one.entry.error().is_some());
        let (before, after) = omitted.split_at(error.unwrap_or(omitted.len()));
        let (error, after) = after.split_first().map_or((None, after), |(error, after)| (Some(error), after));
        let steps = before.iter().chain(after).map(|one| one.entry.omitted().unwrap_or(1)).sum();
        // By their versions: the count is where the last step was that it stands for.
        let place = &after.last().or(before.last())?.entry;
        let mut count = Trail::default();
        count.push(&Entry { actor: Actor::Node, step: Step::Omitted { steps }, ..place.clone() });
        let error = error.map_or(&[][..], |error| error.bytes);
        let between = if after.is_empty() { [&count.0, error] } else { [error, &count.0] };
        let parts = first.iter().map(|one| one.bytes).chain(between).chain(last.iter().map(|one| one.bytes));
        Some(Trail(parts.collect::<Vec<_>>().concat()))
    }

    /// Its steps with their encodings; none if it is damaged.
    fn encoded_entries(&self) -> Option<Vec<EncodedEntry<'_>>> {
        let (mut rest, mut entries) = (self.0.as_slice(), Vec::new());
        while !rest.is_empty() {
            let before = rest;
            let entry = take_entry(&mut rest)?;
            entries.push(EncodedEntry { entry, bytes: &before[..before.len() - rest.len()] });
        }
        Some(entries)
    }
}

/// How many of these steps are within both bounds.
fn fitting<'a>(steps: impl Iterator<Item = &'a EncodedEntry<'a>>, most: usize, bytes: usize) -> usize {
    let sums = steps.scan(0, |sum, one| {
        *sum += one.bytes.len();
        Some(*sum)
    });
    sums.take(most).take_while(|sum| *sum <= bytes).count()
}

/// How many of the first `most` steps to keep, so that no run is open behind them: the end of an
/// open run would be missing, and it would seem to go on. Steps behind an earlier count are not
/// first ones.
fn closed(steps: &[EncodedEntry<'_>], most: usize) -> usize {
    let is_idle = |one: &EncodedEntry<'_>| !one.entry.to.is_held();
    let counted = steps.iter().position(|one| matches!(one.entry.step, Step::Omitted { .. })).unwrap_or(steps.len());
    let most = most.min(counted);
    steps[..most].iter().rposition(is_idle).map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::{NodeId, TaskId};
    use crate::state::State;
    use crate::time::Timestamp;
    use crate::trail::{FailedHow, RunError};

    /// Steps that are taken again and again, with the states after them.
    #[derive(Clone, Copy, Debug)]
    enum Cycle {
        Release,
        Fail(usize),
        Edit,
    }

    /// A trail, and the same without the bound.
    struct Pair {
        bounded: Trail,
        whole: Trail,
        version: u64,
    }

    impl Pair {
        fn new() -> Self {
            let mut pair = Self { bounded: Trail::default(), whole: Trail::default(), version: 0 };
            pair.take(State::Pending, Step::Submitted);
            pair
        }

        fn take(&mut self, to: State, step: Step<'_>) {
            self.version += 1;
            let at = Timestamp::from_millis(i64::try_from(self.version).unwrap());
            let actor = Actor::Worker("w".into());
            let entry = Entry { at, version: self.version, to, node: NodeId::new(u64::MAX), actor, step };
            self.bounded.push(&entry);
            self.whole.push(&entry);
        }

        fn shorten(&mut self) {
            if let Some(kept) = self.bounded.shortened() {
                self.bounded = kept;
            }
        }

        fn run(&mut self, cycle: Cycle) {
            self.shorten();
            if matches!(cycle, Cycle::Edit) {
                return self.take(State::Pending, Step::Edited);
            }
            self.take(State::Queued, Step::Claimed);
            self.take(State::Running, Step::Started { attempt: 1 });
            let message = match cycle {
                Cycle::Fail(bytes) => "x".repeat(bytes),
                _ => return self.take(State::Pending, Step::GivenBack),
            };
            let error = RunError { code: "boom".into(), message: message.into(), details: None };
            self.take(State::Pending, Step::FailedUncounted { outcome: FailedHow::Failed, error, http_status: None });
        }

        /// What holds after every step.
        fn check(&self) {
            let entries: Vec<Entry<'_>> = self.bounded.entries().collect();
            assert!(self.bounded.is_whole() && entries.len() <= STEPS_MAX + 3, "{} steps", entries.len());
            assert!(self.bounded.as_bytes().len() <= BYTES_MAX + 40_000, "{} bytes", self.bounded.as_bytes().len());
            assert_eq!(entries[0].step, Step::Submitted);
            assert!(entries.is_sorted_by_key(|entry| entry.version));
            assert_eq!(
                entries.iter().map(|entry| entry.omitted().unwrap_or(1)).sum::<u64>(),
                self.version,
                "each step is there or counted"
            );
            assert_eq!(self.bounded.last(), self.whole.last());
            assert_eq!(self.bounded.last_error(), self.whole.last_error());
            let id = TaskId::new();
            let (kept, all) = (self.bounded.runs(id), self.whole.runs(id));
            assert!(kept.iter().all(|run| all.contains(run)), "no run has the end of another");
        }
    }

    #[test]
    fn a_short_trail_is_left_alone() {
        let mut pair = Pair::new();
        for _ in 0..66 {
            pair.run(Cycle::Release);
        }
        assert_eq!(pair.bounded.entries().count(), 199);
        assert_eq!(pair.bounded.shortened(), None);
        pair.run(Cycle::Release);
        let kept = pair.bounded.shortened().expect("it has more than 200 steps");
        let omitted: Vec<_> = kept.entries().filter(|entry| matches!(entry.step, Step::Omitted { .. })).collect();
        assert_eq!((kept.entries().count(), omitted.len()), (19 + 1 + 100, 1));
        assert_eq!((omitted[0].step.clone(), omitted[0].version), (Step::Omitted { steps: 83 }, 102));
        assert_eq!(kept.shortened(), None);
    }

    #[test]
    fn a_damaged_trail_is_left_alone() {
        let mut pair = Pair::new();
        for _ in 0..100 {
            pair.take(State::Pending, Step::Edited);
            pair.take(State::Pending, Step::RunNow);
        }
        let whole = pair.whole.as_bytes();
        assert!(Trail::from_bytes(whole.to_vec()).shortened().is_some());
        assert_eq!(Trail::from_bytes(whole[..whole.len() - 1].to_vec()).shortened(), None);
    }

    #[test]
    fn thousands_of_releases_leave_a_short_trail() {
        let mut pair = Pair::new();
        for _ in 0..5_000 {
            pair.run(Cycle::Release);
            // Without this the whole trail would be what takes the time.
            pair.whole = Trail::default();
        }
        assert!(pair.bounded.as_bytes().len() < 10_000, "{} bytes", pair.bounded.as_bytes().len());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 50, ..ProptestConfig::default() })]

        #[test]
        fn any_trail_keeps_its_ends_and_its_last_error(
            cycles in prop::collection::vec(
                (prop_oneof![
                    2 => Just(Cycle::Release),
                    1 => (0_usize..8_000).prop_map(Cycle::Fail),
                    2 => Just(Cycle::Edit),
                ], 1_usize..120), 1..12)
        ) {
            let mut pair = Pair::new();
            for (cycle, times) in cycles {
                for _ in 0..times {
                    pair.run(cycle);
                }
                pair.check();
                pair.shorten();
                pair.check();
            }
        }
    }
}
