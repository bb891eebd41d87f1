//! The bounded queue between the callers and a thread that works on the database.
//!
//! Callers put jobs in and are refused at once when too much waits, or when what waits has
//! waited for too long; the thread takes one after the other and works on them together. There are three ways in, each
//! with a bound of its own: leadership and liveness go before everything, and a flood of
//! submissions neither refuses nor delays the progress of what was submitted before. Each way
//! small jobs pass large ones, but never so many of them that a large one waits for ever; and
//! what is done together ends early when a small job would wait for large ones in it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use punctual_core::store::StoreError;

use super::fault::closed;

/// Which way a job goes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteClass {
    /// Small, rare, and never held up by load: leases of leaders, signs of life of nodes.
    Urgent,
    /// What moves stored tasks on: claims, starts, changes, beats.
    Progress,
    /// What brings new tasks.
    Submission,
}

/// What may wait at the most, each way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub jobs: usize,
    pub rows: usize,
    pub bytes: usize,
    /// The thread is stuck when the first job has waited for so long: whoever comes now would wait in vain.
    pub age: Duration,
}

/// How much is done together at the most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portion {
    pub jobs: usize,
    pub rows: usize,
    /// It ends early for the sake of small jobs no more often than this: every end is a sync of the disk.
    pub hurry: Duration,
}

/// A call that touches no more rows than this is small.
const SMALL_ROWS: usize = 128;
/// A large call is put in as several jobs of about so many rows, between which small ones can pass.
pub(crate) const PART_ROWS: usize = 128;
/// So many rows of small jobs pass a large one that waits, and so many are done together with a small one.
const ROWS_PASSING: usize = 128;

/// A job and what it weighs.
pub(crate) struct Entry<J> {
    pub job: J,
    /// Roughly how much memory it holds.
    pub bytes: usize,
    /// Roughly how many rows it touches.
    pub rows: usize,
    /// It is a part of a large call, and stays in its order among the large ones.
    pub is_part: bool,
}

impl<J> Entry<J> {
    fn is_small(&self) -> bool {
        self.rows <= SMALL_ROWS && !self.is_part
    }
}

/// Jobs that are done together, as far as they have been taken.
#[derive(Debug)]
pub(crate) struct Group {
    portion: Portion,
    /// How many waited when it began: whoever comes later is for the next one, unless it is small.
    waited: usize,
    jobs: usize,
    rows: usize,
    has_small: bool,
    turn: WriteClass,
}

impl Group {
    /// Whether there may be others than the first.
    pub(crate) fn is_of_many(&self) -> bool {
        self.waited > 1
    }
}

/// The queue (see the module).
pub(crate) struct Queue<J> {
    bounds: Bounds,
    state: Mutex<State<J>>,
    wake: Condvar,
}

struct State<J> {
    urgent: Line<J>,
    progress: Line<J>,
    submission: Line<J>,
    /// When a group last ended early.
    hurried_at: Option<Instant>,
    closed: bool,
}

struct Line<J> {
    small: VecDeque<(Instant, Entry<J>)>,
    large: VecDeque<(Instant, Entry<J>)>,
    rows: usize,
    bytes: usize,
    /// Rows of small jobs that have passed the first large one.
    passed: usize,
}

impl<J> Queue<J> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let state = State {
            urgent: Line::default(),
            progress: Line::default(),
            submission: Line::default(),
            hurried_at: None,
            closed: false,
        };
        Self { bounds, state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Puts a job in, or refuses it at once. One job is taken however large it is, or it could never be.
    pub(crate) fn put(&self, way: WriteClass, entry: Entry<J>) -> Result<(), StoreError> {
        self.put_all(way, vec![entry])
    }

    /// Puts the jobs of one call in, one behind the other, or refuses them all.
    pub(crate) fn put_all(&self, way: WriteClass, entries: Vec<Entry<J>>) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(closed());
        }
        let line = state.line(way);
        if line.is_full(&entries, &self.bounds) {
            return Err(StoreError::Overloaded);
        }
        for entry in entries {
            line.push(entry);
        }
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// Waits for jobs and takes what is there, up to the portion; none once the queue is closed and empty.
    pub(crate) fn take(&self, portion: Portion) -> Option<Vec<J>> {
        let mut group = self.begin(portion)?;
        Some(std::iter::from_fn(|| self.next(&mut group)).collect())
    }

    /// Waits for jobs, and begins a group of them; none once the queue is closed and empty.
    pub(crate) fn begin(&self, portion: Portion) -> Option<Group> {
        let mut state = self.state.lock();
        while state.len() == 0 {
            if state.closed {
                return None;
            }
            self.wake.wait(&mut state);
        }
        let waited = state.len();
        Some(Group { portion, waited, jobs: 0, rows: 0, has_small: false, turn: WriteClass::Progress })
    }

    /// The next job of a group; none when it is to end. The first is given if there is one.
    pub(crate) fn next(&self, group: &mut Group) -> Option<J> {
        let Portion { jobs, rows, hurry } = group.portion;
        if group.jobs >= jobs.min(group.waited) || group.rows >= rows {
            return None;
        }
        let mut state = self.state.lock();
        let way = state.next_way(group.turn)?;
        let line = state.line(way);
        let (is_small, rows) = line.next().map(|(_, entry)| (entry.is_small(), entry.rows))?;
        if !is_small && group.has_small && group.rows.saturating_add(rows) > ROWS_PASSING {
            let in_time = state.hurried_at.is_none_or(|at| at.elapsed() >= hurry);
            if in_time {
                state.hurried_at = Some(Instant::now());
                return None;
            }
        }
        let entry = state.line(way).pop()?;
        group.jobs += 1;
        group.rows = group.rows.saturating_add(entry.rows);
        group.has_small |= is_small && way != WriteClass::Urgent;
        group.turn = match way {
            WriteClass::Urgent => group.turn,
            WriteClass::Progress => WriteClass::Submission,
            WriteClass::Submission => WriteClass::Progress,
        };
        Some(entry.job)
    }

    /// How many jobs wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.state.lock().len()
    }

    /// Refuses further jobs; what waits is still taken.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_all();
    }

    /// Refuses further jobs and drops what waits: nobody is left to take it.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let State { urgent, progress, submission, .. } = &mut *state;
        let waiting = [urgent, progress, submission].map(std::mem::take);
        drop(state);
        // Outside the lock: a job that is dropped wakes its caller.
        drop(waiting);
        self.wake.notify_all();
    }
}

impl<J> State<J> {
    fn line(&mut self, way: WriteClass) -> &mut Line<J> {
        match way {
            WriteClass::Urgent => &mut self.urgent,
            WriteClass::Progress => &mut self.progress,
            WriteClass::Submission => &mut self.submission,
        }
    }

    /// What is urgent, then one of each other line in turn, so that neither waits for the other to become empty.
    fn next_way(&self, turn: WriteClass) -> Option<WriteClass> {
        let others = match turn {
            WriteClass::Submission => [WriteClass::Submission, WriteClass::Progress],
            _ => [WriteClass::Progress, WriteClass::Submission],
        };
        let has_some = |way: &WriteClass| match way {
            WriteClass::Urgent => self.urgent.len() > 0,
            WriteClass::Progress => self.progress.len() > 0,
            WriteClass::Submission => self.submission.len() > 0,
        };
        [WriteClass::Urgent].into_iter().chain(others).find(has_some)
    }

    fn len(&self) -> usize {
        self.urgent.len() + self.progress.len() + self.submission.len()
    }
}

impl<J> Line<J> {
    fn len(&self) -> usize {
        self.small.len() + self.large.len()
    }

    fn is_full(&self, entries: &[Entry<J>], bounds: &Bounds) -> bool {
        let firsts = self.small.front().into_iter().chain(self.large.front());
        let Some(first) = firsts.map(|(since, _)| *since).min() else { return false };
        let rows = entries.iter().map(|entry| entry.rows).fold(self.rows, usize::saturating_add);
        let bytes = entries.iter().map(|entry| entry.bytes).fold(self.bytes, usize::saturating_add);
        self.len() >= bounds.jobs || rows > bounds.rows || bytes > bounds.bytes || first.elapsed() > bounds.age
    }

    fn push(&mut self, entry: Entry<J>) {
        self.rows += entry.rows;
        self.bytes += entry.bytes;
        let line = if entry.is_small() { &mut self.small } else { &mut self.large };
        line.push_back((Instant::now(), entry));
    }

    /// Small ones first, unless so many have passed that it is a large one's turn.
    fn is_large_next(&self) -> bool {
        self.small.is_empty() || (!self.large.is_empty() && self.passed >= ROWS_PASSING)
    }

    fn next(&self) -> Option<&(Instant, Entry<J>)> {
        if self.is_large_next() { self.large.front() } else { self.small.front() }
    }

    fn pop(&mut self) -> Option<Entry<J>> {
        let (_, entry) = if self.is_large_next() {
            self.passed = 0;
            self.large.pop_front()?
        } else {
            self.small.pop_front()?
        };
        if !self.large.is_empty() && entry.is_small() {
            self.passed += entry.rows.max(1);
        }
        self.rows -= entry.rows;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

impl<J> Default for Line<J> {
    fn default() -> Self {
        Self { small: VecDeque::new(), large: VecDeque::new(), rows: 0, bytes: 0, passed: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTION: Portion = Portion { jobs: 4, rows: 100, hurry: Duration::ZERO };

    fn queue(jobs: usize, bytes: usize) -> Queue<&'static str> {
        Queue::new(Bounds { jobs, rows: 1_000, bytes, age: Duration::MAX })
    }

    fn entry(job: &'static str, bytes: usize, rows: usize) -> Entry<&'static str> {
        Entry { job, bytes, rows, is_part: false }
    }

    #[test]
    fn too_much_is_refused_at_once_and_each_way_by_itself() {
        let queue = queue(2, 1_000);
        queue.put(WriteClass::Submission, entry("a", 1, 1)).unwrap();
        queue.put(WriteClass::Submission, entry("b", 1, 1)).unwrap();
        assert!(matches!(queue.put(WriteClass::Submission, entry("c", 1, 1)), Err(StoreError::Overloaded)));
        queue.put(WriteClass::Progress, entry("d", 1, 1)).unwrap();
        queue.put(WriteClass::Urgent, entry("e", 1, 1)).unwrap();
        assert_eq!(queue.take(PORTION).unwrap(), ["e", "d", "a", "b"]);
        queue.put(WriteClass::Submission, entry("c", 1, 1)).unwrap();
    }

    #[test]
    fn weight_is_bounded_but_one_job_always_fits() {
        let queue = queue(100, 10);
        queue.put(WriteClass::Submission, entry("huge", 1_000, 1)).unwrap();
        assert!(matches!(queue.put(WriteClass::Submission, entry("small", 1, 1)), Err(StoreError::Overloaded)));
        assert_eq!(queue.take(PORTION).unwrap(), ["huge"]);
        queue.put(WriteClass::Submission, entry("small", 1, 1)).unwrap();
    }

    #[test]
    fn rows_are_bounded_but_one_job_always_fits() {
        let queue = queue(100, 1_000);
        queue.put(WriteClass::Submission, entry("wide", 1, 5_000)).unwrap();
        assert!(matches!(queue.put(WriteClass::Submission, entry("narrow", 1, 1)), Err(StoreError::Overloaded)));
        assert_eq!(queue.take(PORTION).unwrap(), ["wide"]);
        queue.put(WriteClass::Submission, entry("narrow", 1, 1)).unwrap();
    }

    #[test]
    fn nobody_lines_up_behind_a_job_that_has_waited_too_long() {
        let queue = Queue::new(Bounds { jobs: 100, rows: 1_000, bytes: 1_000, age: Duration::ZERO });
        queue.put(WriteClass::Progress, entry("first", 1, 1)).unwrap();
        assert!(matches!(queue.put(WriteClass::Progress, entry("second", 1, 1)), Err(StoreError::Overloaded)));
        queue.put(WriteClass::Submission, entry("of another line", 1, 1)).unwrap();
        assert_eq!(queue.take(PORTION).unwrap(), ["first", "of another line"]);
        queue.put(WriteClass::Progress, entry("second", 1, 1)).unwrap();
    }

    #[test]
    fn a_portion_ends_at_its_jobs_and_at_its_rows() {
        let queue = queue(100, 1_000);
        for job in ["a", "b", "c", "d", "e"] {
            queue.put(WriteClass::Submission, entry(job, 1, 1)).unwrap();
        }
        assert_eq!(queue.take(PORTION).unwrap(), ["a", "b", "c", "d"]);
        queue.put(WriteClass::Progress, entry("wide", 1, 100)).unwrap();
        assert_eq!(queue.take(PORTION).unwrap(), ["wide"]);
        assert_eq!(queue.take(PORTION).unwrap(), ["e"]);
    }

    #[test]
    fn progress_and_submissions_take_turns() {
        let queue = queue(100, 1_000);
        for job in ["s1", "s2", "s3"] {
            queue.put(WriteClass::Submission, entry(job, 1, 1)).unwrap();
        }
        for job in ["p1", "p2", "p3"] {
            queue.put(WriteClass::Progress, entry(job, 1, 1)).unwrap();
        }
        assert_eq!(queue.take(PORTION).unwrap(), ["p1", "s1", "p2", "s2"]);
        assert_eq!(queue.take(PORTION).unwrap(), ["p3", "s3"]);
    }

    #[test]
    fn a_closed_queue_is_emptied_first() {
        let queue = queue(100, 1_000);
        queue.put(WriteClass::Progress, entry("a", 1, 1)).unwrap();
        queue.close();
        assert!(queue.put(WriteClass::Progress, entry("b", 1, 1)).is_err());
        assert_eq!(queue.take(PORTION).unwrap(), ["a"]);
        assert!(queue.take(PORTION).is_none());
    }

    const ALL: Portion = Portion { jobs: 100, rows: 100_000, hurry: Duration::ZERO };

    fn wide() -> Queue<&'static str> {
        Queue::new(Bounds { jobs: 1_000, rows: 1_000_000, bytes: 1_000_000, age: Duration::MAX })
    }

    #[test]
    fn a_small_job_passes_large_ones_and_does_not_wait_for_them_to_be_done() {
        let queue = wide();
        for job in ["large 1", "large 2", "large 3"] {
            queue.put(WriteClass::Progress, entry(job, 1, 256)).unwrap();
        }
        let mut group = queue.begin(ALL).unwrap();
        assert_eq!(queue.next(&mut group), Some("large 1"));
        // While that is being done.
        queue.put(WriteClass::Progress, entry("small", 1, 2)).unwrap();
        assert_eq!(queue.next(&mut group), Some("small"));
        assert_eq!(queue.next(&mut group), None, "it ends for the sake of the small one");
        assert_eq!(queue.take(ALL).unwrap(), ["large 2", "large 3"]);
    }

    #[test]
    fn large_jobs_are_not_passed_by_ever_more_small_ones() {
        let queue = wide();
        queue.put(WriteClass::Progress, entry("large", 1, 1_000)).unwrap();
        for _ in 0..500 {
            queue.put(WriteClass::Progress, entry("small", 1, 1)).unwrap();
        }
        let mut passed = 0;
        while let Some(group) = queue.take(ALL)
            && !group.contains(&"large")
        {
            passed += group.len();
        }
        assert!((100..=200).contains(&passed), "{passed}");
    }

    #[test]
    fn a_group_ends_early_only_so_often() {
        let queue = wide();
        let hurry = Portion { hurry: Duration::from_hours(1), ..ALL };
        for _ in 0..3 {
            queue.put(WriteClass::Progress, entry("small", 1, 1)).unwrap();
            queue.put(WriteClass::Progress, entry("large", 1, 500)).unwrap();
        }
        assert_eq!(queue.take(hurry).unwrap(), ["small"; 3]);
        queue.put(WriteClass::Progress, entry("small", 1, 1)).unwrap();
        assert_eq!(queue.take(hurry).unwrap(), ["small", "large", "large", "large"]);
    }

    #[test]
    fn the_parts_of_a_call_stay_in_order_and_are_refused_together() {
        let queue = Queue::new(Bounds { jobs: 100, rows: 600, bytes: 1_000, age: Duration::MAX });
        let part = |job, rows| Entry { is_part: true, ..entry(job, 1, rows) };
        queue.put_all(WriteClass::Progress, vec![part("one", 256), part("two", 256), part("three", 1)]).unwrap();
        let too_much = vec![part("four", 50), part("five", 50)];
        assert!(matches!(queue.put_all(WriteClass::Progress, too_much), Err(StoreError::Overloaded)));
        assert_eq!(queue.take(ALL).unwrap(), ["one", "two", "three"]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn jobs_that_come_later_are_for_the_next_group() {
        let queue = wide();
        queue.put(WriteClass::Progress, entry("first", 1, 1)).unwrap();
        let mut group = queue.begin(ALL).unwrap();
        assert_eq!(queue.next(&mut group), Some("first"));
        queue.put(WriteClass::Progress, entry("second", 1, 1)).unwrap();
        assert_eq!(queue.next(&mut group), None);
        assert_eq!(queue.take(ALL).unwrap(), ["second"]);
    }
}
