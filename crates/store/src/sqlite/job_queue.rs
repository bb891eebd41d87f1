//! The queue between the callers and the threads of this store: the writer's, and the readers'.
//!
//! There are three classes, each with a [`WriteQueue`] of its own: leadership and presence go
//! before everything, and a flood of submissions neither refuses nor delays the progress of stored
//! tasks.
//!
//! How a batch is chosen: urgent jobs first, then one of each other class in turn. Within a class
//! small jobs pass large ones, up to [`ROWS_PASSING`] rows for each large job that waits. A batch
//! holds jobs that waited when it began, up to its limit. It ends early when a small job in it
//! would wait for a large one, though no more often than its interval allows.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use punctual_core::store::StoreError;

use super::fault::closed;
use crate::write_queue::{BatchLimit, QueueBounds, Size, Weight, WriteQueue};

/// The class of a call: which of the queues it waits in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteClass {
    /// Small and rare, never held up by load: leases of leaders, presence of nodes.
    Urgent,
    /// Calls that move stored tasks on: claims, starts, changes, heartbeats.
    Progress,
    /// Calls that bring new tasks.
    Submission,
}

/// A large call is split into jobs of about this many rows, between which small ones can pass.
pub(crate) const PART_ROWS: usize = 128;

/// How many rows of small jobs pass a waiting large one, and how many rows a batch with a small job
/// may have before it ends.
const ROWS_PASSING: usize = 128;

/// A batch that is being filled.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    /// How many jobs waited when it began: no more than that are taken.
    waited: usize,
    jobs: usize,
    rows: usize,
    has_small: bool,
    /// The class that is next, unless something urgent waits.
    next_class: WriteClass,
}

impl OpenBatch {
    /// Whether it may hold more than one job.
    pub(crate) fn is_of_many(&self) -> bool {
        self.waited > 1
    }
}

/// The queue (see the module).
pub(crate) struct JobQueue<J> {
    bounds: QueueBounds,
    limit: BatchLimit,
    /// Batches end early no more often than this: every end is a sync of the disk.
    early_end_interval: Duration,
    state: Mutex<QueuesState<J>>,
    wake: Condvar,
}

struct QueuesState<J> {
    urgent: ClassQueue<J>,
    progress: ClassQueue<J>,
    submission: ClassQueue<J>,
    /// When a batch last ended early.
    ended_early_at: Option<Instant>,
    closed: bool,
}

struct ClassQueue<J> {
    jobs: WriteQueue<J>,
    /// Rows of small jobs that have passed the first large one.
    passed_rows: usize,
}

impl<J> JobQueue<J> {
    /// An empty queue with these bounds for each class.
    pub(crate) fn new(bounds: QueueBounds, limit: BatchLimit, early_end_interval: Duration) -> Self {
        let state = QueuesState {
            urgent: ClassQueue::default(),
            progress: ClassQueue::default(),
            submission: ClassQueue::default(),
            ended_early_at: None,
            closed: false,
        };
        Self { bounds, limit, early_end_interval, state: Mutex::new(state), wake: Condvar::new() }
    }

    /// Puts a job in, or refuses it at once.
    pub(crate) fn put(&self, class: WriteClass, weight: Weight, job: J) -> Result<(), StoreError> {
        self.add(class, |queue, bounds| queue.put(job, weight, bounds, Instant::now()).map(drop))
    }

    /// Puts the parts of one large call in, one behind the other, or refuses them all.
    pub(crate) fn put_parts(&self, class: WriteClass, parts: Vec<(Weight, J)>) -> Result<(), StoreError> {
        self.add(class, |queue, bounds| queue.put_parts(parts, bounds, Instant::now()))
    }

    fn add(
        &self,
        class: WriteClass,
        put: impl FnOnce(&mut WriteQueue<J>, &QueueBounds) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(closed());
        }
        put(&mut state.class(class).jobs, &self.bounds)?;
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// Waits for jobs and takes a whole batch; none once the queue is closed and empty.
    pub(crate) fn take(&self) -> Option<Vec<J>> {
        let mut batch = self.begin()?;
        Some(std::iter::from_fn(|| self.next(&mut batch)).collect())
    }

    /// Waits for jobs and begins a batch of them; none once the queue is closed and empty.
    pub(crate) fn begin(&self) -> Option<OpenBatch> {
        let mut state = self.state.lock();
        while state.len() == 0 {
            if state.closed {
                return None;
            }
            self.wake.wait(&mut state);
        }
        let waited = state.len();
        Some(OpenBatch { waited, jobs: 0, rows: 0, has_small: false, next_class: WriteClass::Progress })
    }

    /// The next job of a batch; none when the batch is to end.
    pub(crate) fn next(&self, batch: &mut OpenBatch) -> Option<J> {
        if batch.jobs >= self.limit.jobs.min(batch.waited) || batch.rows >= self.limit.rows {
            return None;
        }
        let mut state = self.state.lock();
        let class = state.next_class(batch.next_class)?;
        let size = state.class(class).next_size();
        let rows = state.class(class).jobs.front(size)?.weight.rows;
        let would_delay = size == Size::Large && batch.has_small && batch.rows.saturating_add(rows) > ROWS_PASSING;
        if would_delay && state.ended_early_at.is_none_or(|at| at.elapsed() >= self.early_end_interval) {
            state.ended_early_at = Some(Instant::now());
            return None;
        }
        let job = state.class(class).pop(size)?;
        batch.jobs += 1;
        batch.rows = batch.rows.saturating_add(rows);
        batch.has_small |= size == Size::Small && class != WriteClass::Urgent;
        batch.next_class = match class {
            WriteClass::Urgent => batch.next_class,
            WriteClass::Progress => WriteClass::Submission,
            WriteClass::Submission => WriteClass::Progress,
        };
        Some(job)
    }

    /// How many jobs wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.state.lock().len()
    }

    /// Refuses further jobs; waiting jobs are still taken.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_all();
    }

    /// Refuses further jobs and drops the waiting ones: no thread is left to take them.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let QueuesState { urgent, progress, submission, .. } = &mut *state;
        let waiting = [urgent, progress, submission].map(std::mem::take);
        drop(state);
        // Outside the lock: a job that is dropped wakes its caller.
        drop(waiting);
        self.wake.notify_all();
    }
}

impl<J> QueuesState<J> {
    fn class(&mut self, class: WriteClass) -> &mut ClassQueue<J> {
        match class {
            WriteClass::Urgent => &mut self.urgent,
            WriteClass::Progress => &mut self.progress,
            WriteClass::Submission => &mut self.submission,
        }
    }

    /// The class to take from: urgent, then the preferred one, then the other.
    fn next_class(&self, preferred: WriteClass) -> Option<WriteClass> {
        let others = match preferred {
            WriteClass::Submission => [WriteClass::Submission, WriteClass::Progress],
            _ => [WriteClass::Progress, WriteClass::Submission],
        };
        let has_some = |class: &WriteClass| match class {
            WriteClass::Urgent => !self.urgent.jobs.is_empty(),
            WriteClass::Progress => !self.progress.jobs.is_empty(),
            WriteClass::Submission => !self.submission.jobs.is_empty(),
        };
        [WriteClass::Urgent].into_iter().chain(others).find(has_some)
    }

    fn len(&self) -> usize {
        self.urgent.jobs.len() + self.progress.jobs.len() + self.submission.jobs.len()
    }
}

impl<J> ClassQueue<J> {
    /// Small jobs first, unless so many have passed that a large one is next.
    fn next_size(&self) -> Size {
        let has = |size| self.jobs.front(size).is_some();
        let is_large = !has(Size::Small) || (has(Size::Large) && self.passed_rows >= ROWS_PASSING);
        if is_large { Size::Large } else { Size::Small }
    }

    fn pop(&mut self, size: Size) -> Option<J> {
        let queued = self.jobs.pop(size)?;
        match size {
            Size::Large => self.passed_rows = 0,
            Size::Small if self.jobs.front(Size::Large).is_some() => self.passed_rows += queued.weight.rows.max(1),
            Size::Small => {}
        }
        Some(queued.job)
    }
}

impl<J> Default for ClassQueue<J> {
    fn default() -> Self {
        Self { jobs: WriteQueue::default(), passed_rows: 0 }
    }
}
