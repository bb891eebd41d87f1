//! The bounded queue of calls that wait for a writer: one for each class of calls, in both stores.
//!
//! A store keeps its queues behind one lock and decides itself which job is next: the module heads
//! of `sqlite::job_queue` and `postgres::writer::write_queues` state the two policies. This module
//! has what they share. Small jobs wait apart from large ones, each in the order they came. A call
//! is refused at once when too much waits, but an empty queue takes a call of any size. Invariant:
//! `rows` and `bytes` are the sums over the jobs that wait.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use punctual_core::store::StoreError;

/// How much may wait in one queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueBounds {
    pub jobs: usize,
    pub rows: usize,
    pub bytes: usize,
    /// Further calls are refused once the oldest job has waited for longer: its writer is stuck.
    pub age: Duration,
}

/// How much is done in one transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimit {
    pub jobs: usize,
    pub rows: usize,
}

/// The cost of a call, for the bounds of its queue and of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Roughly how much memory it holds.
    pub bytes: usize,
    /// Roughly how many rows it touches.
    pub rows: usize,
}

impl Weight {
    /// The weight of a call that touches a row or two.
    pub(crate) const SMALL: Self = Self { bytes: 256, rows: 1 };
}

/// A call that touches no more rows than this is small.
const SMALL_ROWS: usize = 128;

/// How large a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Size {
    Small,
    Large,
}

impl Size {
    /// Both sizes, the smaller first.
    pub(crate) const ALL: [Size; 2] = [Size::Small, Size::Large];

    fn of(weight: Weight) -> Self {
        if weight.rows <= SMALL_ROWS { Size::Small } else { Size::Large }
    }
}

/// A job that waits in a queue.
#[derive(Debug)]
pub(crate) struct QueuedJob<J> {
    pub job: J,
    pub weight: Weight,
    /// When it was put in.
    pub since: Instant,
    number: u64,
}

/// The jobs of one class that wait (see the module).
#[derive(Debug)]
pub(crate) struct WriteQueue<J> {
    /// The small ones and the large ones, each by number.
    jobs: [VecDeque<QueuedJob<J>>; 2],
    rows: usize,
    bytes: usize,
    last_number: u64,
}

impl<J> WriteQueue<J> {
    /// Puts a job in, or refuses it. Returns the number to withdraw it by.
    pub(crate) fn put(
        &mut self,
        job: J,
        weight: Weight,
        bounds: &QueueBounds,
        now: Instant,
    ) -> Result<u64, StoreError> {
        self.admit(weight, bounds, now)?;
        Ok(self.push(Size::of(weight), job, weight, now))
    }

    /// Puts the parts of one large call in, or refuses all of them. However small a part is, it
    /// keeps its place among the large jobs, so that the parts stay in order.
    pub(crate) fn put_parts(
        &mut self,
        parts: Vec<(Weight, J)>,
        bounds: &QueueBounds,
        now: Instant,
    ) -> Result<(), StoreError> {
        let rows = parts.iter().map(|(weight, _)| weight.rows).fold(0, usize::saturating_add);
        let bytes = parts.iter().map(|(weight, _)| weight.bytes).fold(0, usize::saturating_add);
        self.admit(Weight { bytes, rows }, bounds, now)?;
        for (weight, job) in parts {
            self.push(Size::Large, job, weight, now);
        }
        Ok(())
    }

    /// Takes a job back; none if a writer already has it.
    pub(crate) fn withdraw(&mut self, number: u64) -> Option<J> {
        for size in Size::ALL {
            let jobs = &mut self.jobs[size as usize];
            if let Ok(at) = jobs.binary_search_by_key(&number, |queued| queued.number) {
                let queued = jobs.remove(at)?;
                self.subtract(queued.weight);
                return Some(queued.job);
            }
        }
        None
    }

    /// The job of this size that has waited longest.
    pub(crate) fn front(&self, size: Size) -> Option<&QueuedJob<J>> {
        self.jobs[size as usize].front()
    }

    /// Takes the job of this size that has waited longest.
    pub(crate) fn pop(&mut self, size: Size) -> Option<QueuedJob<J>> {
        let queued = self.jobs[size as usize].pop_front()?;
        self.subtract(queued.weight);
        Some(queued)
    }

    /// How many jobs wait.
    pub(crate) fn len(&self) -> usize {
        self.jobs.iter().map(VecDeque::len).sum()
    }

    /// Whether no job waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.iter().all(VecDeque::is_empty)
    }

    /// Fails if too much would wait, or if the oldest job has waited too long.
    fn admit(&self, weight: Weight, bounds: &QueueBounds, now: Instant) -> Result<(), StoreError> {
        let fronts = Size::ALL.iter().filter_map(|size| self.front(*size));
        let Some(oldest) = fronts.map(|queued| queued.since).min() else { return Ok(()) };
        let is_full = self.len() >= bounds.jobs
            || self.rows.saturating_add(weight.rows) > bounds.rows
            || self.bytes.saturating_add(weight.bytes) > bounds.bytes;
        if is_full || now.saturating_duration_since(oldest) > bounds.age {
            return Err(StoreError::Overloaded);
        }
        Ok(())
    }

    fn push(&mut self, size: Size, job: J, weight: Weight, since: Instant) -> u64 {
        self.rows += weight.rows;
        self.bytes += weight.bytes;
        self.last_number += 1;
        let number = self.last_number;
        self.jobs[size as usize].push_back(QueuedJob { job, weight, since, number });
        number
    }

    fn subtract(&mut self, weight: Weight) {
        debug_assert!(self.rows >= weight.rows && self.bytes >= weight.bytes, "the sums cover every job");
        self.rows -= weight.rows;
        self.bytes -= weight.bytes;
    }
}

impl<J> Default for WriteQueue<J> {
    fn default() -> Self {
        Self { jobs: [VecDeque::new(), VecDeque::new()], rows: 0, bytes: 0, last_number: 0 }
    }
}
