//! The bounded queue between the callers and a thread that works on the database.
//!
//! Callers put jobs in and are refused at once when too much waits, or when what waits has
//! waited for too long; the thread takes all that waits, up to a bound, and works on it together. There are three ways in, each
//! with a bound of its own: leadership and liveness go before everything, and a flood of
//! submissions neither refuses nor delays the progress of what was submitted before.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use punctual_core::store::StoreError;

use super::fault::closed;

/// Which way a job goes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
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

/// How much is taken at once at the most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portion {
    pub jobs: usize,
    pub rows: usize,
}

/// A job and what it weighs.
pub(crate) struct Entry<J> {
    pub job: J,
    /// Roughly how much memory it holds.
    pub bytes: usize,
    /// Roughly how many rows it touches.
    pub rows: usize,
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
    closed: bool,
}

struct Line<J> {
    entries: VecDeque<(Instant, Entry<J>)>,
    rows: usize,
    bytes: usize,
}

impl<J> Queue<J> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        let state =
            State { urgent: Line::default(), progress: Line::default(), submission: Line::default(), closed: false };
        Self { bounds, state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Puts a job in, or refuses it at once. One job is taken however large it is, or it could never be.
    pub(crate) fn put(&self, way: Way, entry: Entry<J>) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(closed());
        }
        let line = match way {
            Way::Urgent => &mut state.urgent,
            Way::Progress => &mut state.progress,
            Way::Submission => &mut state.submission,
        };
        if line.is_full(&entry, &self.bounds) {
            return Err(StoreError::Overloaded);
        }
        line.push(entry);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// Waits for jobs and takes what is there, up to the portion; none once the queue is closed and empty.
    pub(crate) fn take(&self, portion: Portion) -> Option<Vec<J>> {
        let mut state = self.state.lock();
        while state.is_empty() {
            if state.closed {
                return None;
            }
            self.wake.wait(&mut state);
        }
        let (mut jobs, mut rows) = (Vec::new(), 0_usize);
        let mut turn = Way::Progress;
        while jobs.len() < portion.jobs && rows < portion.rows {
            let Some(entry) = state.next(&mut turn) else { break };
            rows = rows.saturating_add(entry.rows);
            jobs.push(entry.job);
        }
        Some(jobs)
    }

    /// How many jobs wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let state = self.state.lock();
        state.urgent.entries.len() + state.progress.entries.len() + state.submission.entries.len()
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
    /// What is urgent, then one of each other line in turn, so that neither waits for the other to become empty.
    fn next(&mut self, turn: &mut Way) -> Option<Entry<J>> {
        if let Some(entry) = self.urgent.pop() {
            return Some(entry);
        }
        if *turn == Way::Progress {
            *turn = Way::Submission;
            self.progress.pop().or_else(|| self.submission.pop())
        } else {
            *turn = Way::Progress;
            self.submission.pop().or_else(|| self.progress.pop())
        }
    }

    fn is_empty(&self) -> bool {
        self.urgent.entries.is_empty() && self.progress.entries.is_empty() && self.submission.entries.is_empty()
    }
}

impl<J> Line<J> {
    fn is_full(&self, entry: &Entry<J>, bounds: &Bounds) -> bool {
        let Some((first, _)) = self.entries.front() else { return false };
        self.entries.len() >= bounds.jobs
            || self.rows.saturating_add(entry.rows) > bounds.rows
            || self.bytes.saturating_add(entry.bytes) > bounds.bytes
            || first.elapsed() > bounds.age
    }

    fn push(&mut self, entry: Entry<J>) {
        self.rows += entry.rows;
        self.bytes += entry.bytes;
        self.entries.push_back((Instant::now(), entry));
    }

    fn pop(&mut self) -> Option<Entry<J>> {
        let (_, entry) = self.entries.pop_front()?;
        self.rows -= entry.rows;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

impl<J> Default for Line<J> {
    fn default() -> Self {
        Self { entries: VecDeque::new(), rows: 0, bytes: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PORTION: Portion = Portion { jobs: 4, rows: 100 };

    fn queue(jobs: usize, bytes: usize) -> Queue<&'static str> {
        Queue::new(Bounds { jobs, rows: 1_000, bytes, age: Duration::MAX })
    }

    fn entry(job: &'static str, bytes: usize, rows: usize) -> Entry<&'static str> {
        Entry { job, bytes, rows }
    }

    #[test]
    fn too_much_is_refused_at_once_and_each_way_by_itself() {
        let queue = queue(2, 1_000);
        queue.put(Way::Submission, entry("a", 1, 1)).unwrap();
        queue.put(Way::Submission, entry("b", 1, 1)).unwrap();
        assert!(matches!(queue.put(Way::Submission, entry("c", 1, 1)), Err(StoreError::Overloaded)));
        queue.put(Way::Progress, entry("d", 1, 1)).unwrap();
        queue.put(Way::Urgent, entry("e", 1, 1)).unwrap();
        assert_eq!(queue.take(PORTION).unwrap(), ["e", "d", "a", "b"]);
        queue.put(Way::Submission, entry("c", 1, 1)).unwrap();
    }

    #[test]
    fn weight_is_bounded_but_one_job_always_fits() {
        let queue = queue(100, 10);
        queue.put(Way::Submission, entry("huge", 1_000, 1)).unwrap();
        assert!(matches!(queue.put(Way::Submission, entry("small", 1, 1)), Err(StoreError::Overloaded)));
        assert_eq!(queue.take(PORTION).unwrap(), ["huge"]);
        queue.put(Way::Submission, entry("small", 1, 1)).unwrap();
    }

    #[test]
    fn rows_are_bounded_but_one_job_always_fits() {
        let queue = queue(100, 1_000);
        queue.put(Way::Submission, entry("wide", 1, 5_000)).unwrap();
        assert!(matches!(queue.put(Way::Submission, entry("narrow", 1, 1)), Err(StoreError::Overloaded)));
        assert_eq!(queue.take(PORTION).unwrap(), ["wide"]);
        queue.put(Way::Submission, entry("narrow", 1, 1)).unwrap();
    }

    #[test]
    fn nobody_lines_up_behind_a_job_that_has_waited_too_long() {
        let queue = Queue::new(Bounds { jobs: 100, rows: 1_000, bytes: 1_000, age: Duration::ZERO });
        queue.put(Way::Progress, entry("first", 1, 1)).unwrap();
        assert!(matches!(queue.put(Way::Progress, entry("second", 1, 1)), Err(StoreError::Overloaded)));
        queue.put(Way::Submission, entry("of another line", 1, 1)).unwrap();
        assert_eq!(queue.take(PORTION).unwrap(), ["first", "of another line"]);
        queue.put(Way::Progress, entry("second", 1, 1)).unwrap();
    }

    #[test]
    fn a_portion_ends_at_its_jobs_and_at_its_rows() {
        let queue = queue(100, 1_000);
        for job in ["a", "b", "c", "d", "e"] {
            queue.put(Way::Submission, entry(job, 1, 1)).unwrap();
        }
        assert_eq!(queue.take(PORTION).unwrap(), ["a", "b", "c", "d"]);
        queue.put(Way::Progress, entry("wide", 1, 100)).unwrap();
        assert_eq!(queue.take(PORTION).unwrap(), ["wide"]);
        assert_eq!(queue.take(PORTION).unwrap(), ["e"]);
    }

    #[test]
    fn progress_and_submissions_take_turns() {
        let queue = queue(100, 1_000);
        for job in ["s1", "s2", "s3"] {
            queue.put(Way::Submission, entry(job, 1, 1)).unwrap();
        }
        for job in ["p1", "p2", "p3"] {
            queue.put(Way::Progress, entry(job, 1, 1)).unwrap();
        }
        assert_eq!(queue.take(PORTION).unwrap(), ["p1", "s1", "p2", "s2"]);
        assert_eq!(queue.take(PORTION).unwrap(), ["p3", "s3"]);
    }

    #[test]
    fn a_closed_queue_is_emptied_first() {
        let queue = queue(100, 1_000);
        queue.put(Way::Progress, entry("a", 1, 1)).unwrap();
        queue.close();
        assert!(queue.put(Way::Progress, entry("b", 1, 1)).is_err());
        assert_eq!(queue.take(PORTION).unwrap(), ["a"]);
        assert!(queue.take(PORTION).is_none());
    }
}
