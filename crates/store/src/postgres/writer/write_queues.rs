//! The bounded queues between the callers and the writers, one for each verb.
//!
//! How a batch is chosen: a free writer takes the verb whose first job has waited longest, and many
//! jobs of that verb at once. A verb has a few slots, so a flood of submissions of any sizes leaves
//! one writer free. Small jobs are kept apart from large ones, and one writer is kept for them: a
//! small call does not wait for the thousands of rows of another caller. A caller withdraws a job
//! that no writer has taken in time, and the time that is left bounds the waits for locks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use punctual_core::store::StoreError;
use tokio::sync::{Notify, oneshot};

use super::verbs::{VerbQueue, VerbQueues, WriteBatch, WriteJob, WriteVerb};
use crate::postgres::fault::closed;
use crate::write_queue::{BatchLimit, QueueBounds, Size, Weight};

/// The queues (see the module).
pub(crate) struct WriteQueues {
    bounds: QueueBounds,
    limit: BatchLimit,
    /// A job that no writer has taken within this time is withdrawn.
    patience: Duration,
    state: Mutex<QueuesState>,
    wake: Notify,
}

struct QueuesState {
    verbs: VerbQueues,
    /// The number of writers that are at work on large jobs, and its maximum.
    at_large: usize,
    at_large_max: usize,
    closed: bool,
}

/// Chooses the queue of a verb.
pub(crate) type Choose<I, A> = fn(&mut VerbQueues) -> &mut VerbQueue<I, A>;

impl WriteQueues {
    /// Queues for this many writers. Of three or more, at least one is never inserting.
    pub(crate) fn new(bounds: QueueBounds, limit: BatchLimit, patience: Duration, writers: usize) -> Self {
        let spare = writers.saturating_sub(1);
        // Small jobs have one slot more than their verb.
        let verbs = VerbQueues::new(spare.saturating_sub(1).clamp(1, 2));
        let state = QueuesState { verbs, at_large: 0, at_large_max: spare.max(1), closed: false };
        Self { bounds, limit, patience, state: Mutex::new(state), wake: Notify::new() }
    }

    /// Puts a call in and waits for its answer.
    pub(crate) async fn call<I, A>(
        &self,
        choose: Choose<I, A>,
        items: Vec<I>,
        weight: Weight,
    ) -> Result<Vec<A>, StoreError> {
        if items.is_empty() {
            return if self.is_closed() { Err(closed()) } else { Ok(Vec::new()) };
        }
        let (reply, mut answer) = oneshot::channel();
        let number = self.put(choose, WriteJob { items, reply }, weight)?;
        let answered = match tokio::time::timeout(self.patience, &mut answer).await {
            Ok(answered) => answered,
            Err(_) if self.withdraw(choose, number) => {
                let reason = "PostgreSQL cannot be reached, or is too slow; nothing was changed";
                return Err(StoreError::Unavailable(reason.to_owned()));
            }
            // A writer has it, and will answer.
            Err(_) => answer.await,
        };
        answered.unwrap_or_else(|_| Err(StoreError::Unavailable("the store gave the call up".to_owned())))
    }

    fn put<I, A>(&self, choose: Choose<I, A>, job: WriteJob<I, A>, weight: Weight) -> Result<u64, StoreError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(closed());
        }
        let number = choose(&mut state.verbs).jobs.put(job, weight, &self.bounds, Instant::now())?;
        drop(state);
        self.wake.notify_one();
        Ok(number)
    }

    /// Takes a job back; false if a writer has it already.
    fn withdraw<I, A>(&self, choose: Choose<I, A>, number: u64) -> bool {
        choose(&mut self.state.lock().verbs).jobs.withdraw(number).is_some()
    }

    /// Waits for jobs and takes a batch; none once the queues are closed and empty.
    pub(crate) async fn take(self: &Arc<Self>) -> Option<(WriteBatch, WriterSlot)> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(taken) = self.take_now(&mut state) {
                    drop(state);
                    // There may be more for the next writer.
                    self.wake.notify_one();
                    return Some(taken);
                }
                if state.closed && state.verbs.is_empty() {
                    drop(state);
                    self.wake.notify_one();
                    return None;
                }
            }
            self.wake.notified().await;
        }
    }

    fn take_now(self: &Arc<Self>, state: &mut QueuesState) -> Option<(WriteBatch, WriterSlot)> {
        let may_take_large = state.at_large < state.at_large_max;
        let sizes: &[Size] = if may_take_large { &Size::ALL } else { &[Size::Small] };
        let (since, size, verb) = state.verbs.oldest(sizes)?;
        let batch = state.verbs.take(verb, size, self.limit);
        state.at_large += usize::from(size == Size::Large);
        Some((batch, WriterSlot { queues: Arc::clone(self), verb, size, since }))
    }

    /// Refuses further calls; waiting ones are still served.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_one();
    }

    /// Whether further calls are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Refuses further calls and drops the waiting ones: no writer is left to serve them.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let waiting = state.verbs.abandon();
        drop(state);
        // Outside the lock: a job that is dropped wakes its caller.
        drop(waiting);
        self.wake.notify_one();
    }
}

/// A writer's slot of a verb; it is free again when this is dropped.
pub(crate) struct WriterSlot {
    queues: Arc<WriteQueues>,
    verb: WriteVerb,
    size: Size,
    /// When the oldest job of the batch was put in.
    since: Instant,
}

impl WriterSlot {
    /// How long a statement of the batch may wait for a lock.
    pub(crate) fn lock_timeout(&self) -> Duration {
        lock_timeout(self.queues.patience, self.since.elapsed())
    }
}

/// A call that waits for a writer and then for a lock waits for `patience` in all, and a tenth of
/// it at most on top. In whole tenths, so that the setting of a session rarely changes.
fn lock_timeout(patience: Duration, waited: Duration) -> Duration {
    let tenth = patience.max(Duration::from_millis(10)) / 10;
    let used = waited.as_millis() / tenth.as_millis();
    tenth * (10 - u32::try_from(used).map_or(9, |used| used.min(9)))
}

impl Drop for WriterSlot {
    fn drop(&mut self) {
        let mut state = self.queues.state.lock();
        state.verbs.free(self.verb, self.size);
        state.at_large -= usize::from(self.size == Size::Large);
        drop(state);
        self.queues.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use punctual_core::ids::TaskId;
    use punctual_core::store::Start;
    use punctual_testkit::fixtures::task;

    use super::*;

    fn queues(writers: usize) -> Arc<WriteQueues> {
        let bounds = QueueBounds { jobs: 100, rows: 100_000, bytes: 100_000, age: Duration::MAX };
        let limit = BatchLimit { jobs: 100, rows: 10_000 };
        Arc::new(WriteQueues::new(bounds, limit, Duration::from_mins(1), writers))
    }

    /// Queues a call of this many rows.
    async fn put(queues: &Arc<WriteQueues>, verb: Kind, rows: usize) {
        let waits = Arc::clone(queues);
        tokio::spawn(async move {
            let weight = Weight { bytes: 1, rows };
            match verb {
                Kind::Insert => drop(waits.call(|verbs| &mut verbs.insert, vec![task().build()], weight).await),
                Kind::Quarantine => drop(waits.call(|verbs| &mut verbs.quarantine, vec![TaskId::new()], weight).await),
                Kind::Start => {
                    let start = Start { id: TaskId::new(), version: 1, worker: "w".to_owned(), grace_millis: 1 };
                    drop(waits.call(|verbs| &mut verbs.start, vec![start], weight).await);
                }
            }
        });
        tokio::task::yield_now().await;
    }

    #[derive(Clone, Copy)]
    enum Kind {
        Insert,
        Quarantine,
        Start,
    }

    /// What a writer would take now: the verb and the number of jobs.
    fn take(queues: &Arc<WriteQueues>) -> Option<(&'static str, usize, WriterSlot)> {
        match pin!(queues.take()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some((WriteBatch::Insert(jobs), slot))) => Some(("insert", jobs.len(), slot)),
            Poll::Ready(Some((WriteBatch::Quarantine(jobs), slot))) => Some(("quarantine", jobs.len(), slot)),
            Poll::Ready(Some((WriteBatch::Start(jobs), slot))) => Some(("start", jobs.len(), slot)),
            Poll::Ready(_) => panic!("nothing else was put in"),
            Poll::Pending => None,
        }
    }

    #[test]
    fn waits_for_a_writer_and_a_lock_share_the_patience() {
        let (patience, second) = (Duration::from_secs(5), Duration::from_secs(1));
        assert_eq!(lock_timeout(patience, Duration::from_millis(100)), patience);
        assert_eq!(lock_timeout(patience, 2 * second), 3 * second);
        assert_eq!(lock_timeout(patience, patience), second / 2);
        assert_eq!(lock_timeout(patience, Duration::MAX), second / 2);
        assert!(lock_timeout(Duration::ZERO, second) > Duration::ZERO, "zero would be no bound");
    }

    #[tokio::test]
    async fn small_calls_are_done_beside_large_ones() {
        let queues = queues(4);
        for rows in [1_000, 1, 1_000, 2] {
            put(&queues, Kind::Quarantine, rows).await;
        }
        let (verb, jobs, large) = take(&queues).unwrap();
        assert_eq!((verb, jobs), ("quarantine", 2));
        put(&queues, Kind::Quarantine, 1_000).await;
        let (verb, jobs, _small) = take(&queues).unwrap();
        assert_eq!((verb, jobs), ("quarantine", 2), "the two small ones");
        assert!(take(&queues).is_none(), "one writer is with the large ones");
        drop(large);
        assert_eq!(take(&queues).unwrap().1, 1);
    }

    #[tokio::test]
    async fn one_writer_is_kept_for_small_calls() {
        let queues = queues(2);
        put(&queues, Kind::Quarantine, 1_000).await;
        put(&queues, Kind::Start, 1_000).await;
        let (_, _, large) = take(&queues).unwrap();
        assert!(take(&queues).is_none(), "the other writer is for small ones");
        put(&queues, Kind::Start, 1).await;
        let (verb, jobs, _small) = take(&queues).unwrap();
        assert_eq!((verb, jobs), ("start", 1));
        drop(large);
        assert_eq!(take(&queues).unwrap().0, "start");
    }

    #[tokio::test]
    async fn submissions_of_any_sizes_leave_a_writer_free() {
        for writers in 3..=8 {
            let queues = queues(writers);
            let mut at_work = Vec::new();
            for rows in [1_000, 1, 1_000, 1].into_iter().cycle().take(4 * writers) {
                put(&queues, Kind::Insert, rows).await;
                at_work.extend(take(&queues));
            }
            assert!(at_work.len() > 1, "small and large ones beside each other");
            assert!(at_work.len() < writers, "{} of {writers} writers insert", at_work.len());
            put(&queues, Kind::Start, 1).await;
            assert_eq!(take(&queues).unwrap().0, "start");
        }
    }

    #[tokio::test]
    async fn a_single_writer_takes_every_size() {
        let queues = queues(1);
        put(&queues, Kind::Start, 1_000).await;
        assert_eq!(take(&queues).unwrap().1, 1, "a single writer does everything");
    }
}
