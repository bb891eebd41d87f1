//! The bounded queues between the callers and the writers.
//!
//! There is one queue for each verb. Callers put jobs in and are refused at once when too much
//! waits; a writer takes many jobs of one verb and does them in one transaction. So many writers
//! at the most are with one verb at a time, so that a flood of submissions never has them
//! all. Small jobs are done apart from large ones, and one writer is kept for them: who asks for
//! little does not wait until somebody's thousands are done. A job that has waited for too long
//! is taken back by its caller.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use punctual_core::schedules::Advanced;
use punctual_core::state::Change;
use punctual_core::store::{Applied, Beat, Claim, Claimed, Inserted, Start, StoreError};
use punctual_core::task::{Hold, NewTask, Task};
use punctual_core::upkeep::Resolved;
use tokio::sync::{Notify, oneshot};

use crate::postgres::apply::Led;
use crate::postgres::fault::closed;
use crate::postgres::resolve::ResolverStep;
use crate::postgres::schedules::LedAdvances;

/// What may wait in a queue at the most, and how much is taken at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub jobs: usize,
    pub rows: usize,
    pub bytes: usize,
    pub age: Duration,
    pub group_jobs: usize,
    pub group_rows: usize,
}

/// A call that waits.
pub(crate) struct Job<I, A> {
    pub items: Vec<I>,
    pub reply: oneshot::Sender<Result<Vec<A>, StoreError>>,
    since: Instant,
    number: u64,
    rows: usize,
    bytes: usize,
}

/// Jobs of one verb.
pub(crate) type Jobs<I, A> = Vec<Job<I, A>>;

/// The jobs of one verb, on their way to a writer.
pub(crate) enum WriteBatch {
    Insert(Jobs<NewTask, Inserted>),
    Claim(Jobs<Claim, Claimed>),
    Start(Jobs<Start, Option<Task>>),
    Apply(Jobs<(TaskId, Change), Applied>),
    ApplyAs(Jobs<Led, Option<Vec<Applied>>>),
    Extend(Jobs<Beat, Option<Hold>>),
    Review(Jobs<TaskId, ()>),
    Resolve(Jobs<ResolverStep, Resolved>),
    Advance(Jobs<LedAdvances, Option<Vec<Advanced>>>),
}

/// What a call weighs, for the bounds of its queue and of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight {
    /// Roughly how much memory it holds.
    pub bytes: usize,
    /// Roughly how many rows it touches.
    pub rows: usize,
}

/// A call that is about no more rows than this is small.
const SMALL_ROWS: usize = 128;

/// How large a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Size {
    Small,
    Large,
}

impl Size {
    const ALL: [Size; 2] = [Size::Small, Size::Large];

    fn of(rows: usize) -> Self {
        if rows <= SMALL_ROWS { Size::Small } else { Size::Large }
    }
}

/// The jobs of one verb that wait.
pub(crate) struct VerbQueue<I, A> {
    /// The small ones, and the large ones.
    jobs: [VecDeque<Job<I, A>>; 2],
    rows: usize,
    bytes: usize,
    /// Writers that are with those of this verb, and how many may be.
    busy: [usize; 2],
    most: usize,
}

/// The queues (see the module).
pub(crate) struct WriteQueues {
    bounds: Bounds,
    state: Mutex<State>,
    wake: Notify,
}

struct State {
    all: VerbQueues,
    /// Writers that are with large jobs, and how many may be.
    with_large: usize,
    most_with_large: usize,
    number: u64,
    closed: bool,
}

/// One queue for each verb.
pub(crate) struct VerbQueues {
    pub insert: VerbQueue<NewTask, Inserted>,
    pub claim: VerbQueue<Claim, Claimed>,
    pub start: VerbQueue<Start, Option<Task>>,
    pub apply: VerbQueue<(TaskId, Change), Applied>,
    pub apply_as: VerbQueue<Led, Option<Vec<Applied>>>,
    pub extend: VerbQueue<Beat, Option<Hold>>,
    pub review: VerbQueue<TaskId, ()>,
    pub resolve: VerbQueue<ResolverStep, Resolved>,
    pub advance: VerbQueue<LedAdvances, Option<Vec<Advanced>>>,
}

/// Chooses the queue of a verb.
pub(crate) type Choose<I, A> = fn(&mut VerbQueues) -> &mut VerbQueue<I, A>;

impl WriteQueues {
    /// Queues for so many writers. One claims at a time: what another would skip, having found it locked, costs as much as
    /// what it takes. One is always left that does not insert.
    pub(crate) fn new(bounds: Bounds, writers: usize) -> Self {
        let some = writers.saturating_sub(1).clamp(1, 2);
        let all = VerbQueues {
            insert: VerbQueue::new(some),
            claim: VerbQueue::new(1),
            start: VerbQueue::new(1),
            apply: VerbQueue::new(some),
            apply_as: VerbQueue::new(1),
            extend: VerbQueue::new(1),
            review: VerbQueue::new(1),
            resolve: VerbQueue::new(1),
            advance: VerbQueue::new(1),
        };
        let most_with_large = writers.saturating_sub(1).max(1);
        let state = State { all, with_large: 0, most_with_large, number: 0, closed: false };
        Self { bounds, state: Mutex::new(state), wake: Notify::new() }
    }

    /// Puts a call in and waits for its answer. One is taken however large it is, or it could never be.
    pub(crate) async fn call<I, A>(
        &self,
        choose: Choose<I, A>,
        items: Vec<I>,
        weight: Weight,
    ) -> Result<Vec<A>, StoreError> {
        if items.is_empty() {
            return if self.state.lock().closed { Err(closed()) } else { Ok(Vec::new()) };
        }
        let (reply, mut answer) = oneshot::channel();
        let number = self.put(choose, items, weight, reply)?;
        let answered = match tokio::time::timeout(self.bounds.age, &mut answer).await {
            Ok(answered) => answered,
            Err(_) if self.withdraw(choose, number) => {
                let reason = "PostgreSQL cannot be reached, or is too slow; nothing was changed";
                return Err(StoreError::Unavailable(reason.to_owned()));
            }
            // A writer has it: what becomes of it is told.
            Err(_) => answer.await,
        };
        answered.unwrap_or_else(|_| Err(StoreError::Unavailable("the store gave the call up".to_owned())))
    }

    fn put<I, A>(
        &self,
        choose: Choose<I, A>,
        items: Vec<I>,
        Weight { bytes, rows }: Weight,
        reply: oneshot::Sender<Result<Vec<A>, StoreError>>,
    ) -> Result<u64, StoreError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(closed());
        }
        state.number += 1;
        let number = state.number;
        let queue = choose(&mut state.all);
        if queue.is_full(rows, bytes, &self.bounds) {
            return Err(StoreError::Overloaded);
        }
        queue.rows += rows;
        queue.bytes += bytes;
        queue.jobs[Size::of(rows) as usize].push_back(Job { items, reply, since: Instant::now(), number, rows, bytes });
        drop(state);
        self.wake.notify_one();
        Ok(number)
    }

    /// Takes a job back; false if a writer has it already.
    fn withdraw<I, A>(&self, choose: Choose<I, A>, number: u64) -> bool {
        let mut state = self.state.lock();
        let queue = choose(&mut state.all);
        for jobs in &mut queue.jobs {
            if let Ok(at) = jobs.binary_search_by_key(&number, |job| job.number)
                && let Some(job) = jobs.remove(at)
            {
                queue.rows -= job.rows;
                queue.bytes -= job.bytes;
                return true;
            }
        }
        false
    }

    /// Waits for jobs, and takes those of the verb whose first has waited longest; none once the queues are closed and
    /// there is nothing left to take.
    pub(crate) async fn take(self: &Arc<Self>) -> Option<(WriteBatch, Slot)> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(taken) = self.take_now(&mut state) {
                    drop(state);
                    // There may be more for the next writer.
                    self.wake.notify_one();
                    return Some(taken);
                }
                if state.closed && state.all.is_empty() {
                    drop(state);
                    self.wake.notify_one();
                    return None;
                }
            }
            self.wake.notified().await;
        }
    }

    fn take_now(self: &Arc<Self>, state: &mut State) -> Option<(WriteBatch, Slot)> {
        let bounds = &self.bounds;
        let may_take_large = state.with_large < state.most_with_large;
        let all = &mut state.all;
        let sizes: &[Size] = if may_take_large { &Size::ALL } else { &[Size::Small] };
        let waits = [
            all.insert.first(sizes),
            all.claim.first(sizes),
            all.start.first(sizes),
            all.apply.first(sizes),
            all.apply_as.first(sizes),
            all.extend.first(sizes),
            all.review.first(sizes),
            all.resolve.first(sizes),
            all.advance.first(sizes),
        ];
        let waits = waits.iter().enumerate();
        let ((_, size), verb) = waits.filter_map(|(verb, first)| first.map(|first| (first, verb))).min()?;
        let busy = |of: fn(&mut VerbQueues) -> &mut [usize; 2]| Slot { queues: Arc::clone(self), of, size };
        let taken = match verb {
            0 => (WriteBatch::Insert(all.insert.take(size, bounds)), busy(|verbs| &mut verbs.insert.busy)),
            1 => (WriteBatch::Claim(all.claim.take(size, bounds)), busy(|verbs| &mut verbs.claim.busy)),
            2 => (WriteBatch::Start(all.start.take(size, bounds)), busy(|verbs| &mut verbs.start.busy)),
            3 => (WriteBatch::Apply(all.apply.take(size, bounds)), busy(|verbs| &mut verbs.apply.busy)),
            4 => (WriteBatch::ApplyAs(all.apply_as.take(size, bounds)), busy(|verbs| &mut verbs.apply_as.busy)),
            5 => (WriteBatch::Extend(all.extend.take(size, bounds)), busy(|verbs| &mut verbs.extend.busy)),
            6 => (WriteBatch::Review(all.review.take(size, bounds)), busy(|verbs| &mut verbs.review.busy)),
            7 => (WriteBatch::Resolve(all.resolve.take(size, bounds)), busy(|verbs| &mut verbs.resolve.busy)),
            _ => (WriteBatch::Advance(all.advance.take(size, bounds)), busy(|verbs| &mut verbs.advance.busy)),
        };
        state.with_large += usize::from(size == Size::Large);
        Some(taken)
    }

    /// Refuses further calls; what waits is still taken.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.wake.notify_one();
    }

    /// Whether further calls are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Drops what waits: nobody is left to take it.
    pub(crate) fn abandon(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let VerbQueues { insert, claim, start, apply, apply_as, extend, review, resolve, advance } = &mut state.all;
        insert.clear();
        claim.clear();
        start.clear();
        apply.clear();
        apply_as.clear();
        extend.clear();
        review.clear();
        resolve.clear();
        advance.clear();
        drop(state);
        self.wake.notify_one();
    }
}

impl VerbQueues {
    fn is_empty(&self) -> bool {
        self.insert.is_empty()
            && self.claim.is_empty()
            && self.start.is_empty()
            && self.apply.is_empty()
            && self.apply_as.is_empty()
            && self.extend.is_empty()
            && self.review.is_empty()
            && self.resolve.is_empty()
            && self.advance.is_empty()
    }
}

impl<I, A> VerbQueue<I, A> {
    fn new(most: usize) -> Self {
        Self { jobs: Default::default(), rows: 0, bytes: 0, busy: [0; 2], most }
    }

    fn is_full(&self, rows: usize, bytes: usize, bounds: &Bounds) -> bool {
        !self.is_empty()
            && (self.jobs.iter().map(VecDeque::len).sum::<usize>() >= bounds.jobs
                || self.rows.saturating_add(rows) > bounds.rows
                || self.bytes.saturating_add(bytes) > bounds.bytes)
    }

    fn is_empty(&self) -> bool {
        self.jobs.iter().all(VecDeque::is_empty)
    }

    fn clear(&mut self) {
        self.jobs.iter_mut().for_each(VecDeque::clear);
    }

    /// Since when the first job of these sizes waits that a writer may take, and its size. With small ones one writer more
    /// may be than the verb has, so that they never wait for the large ones.
    fn first(&self, sizes: &[Size]) -> Option<(Instant, Size)> {
        let is_allowed = |size: Size| match size {
            Size::Small => self.busy[0] < self.most && self.busy[0] + self.busy[1] <= self.most,
            Size::Large => self.busy[0] + self.busy[1] < self.most || self.busy[1] == 0,
        };
        let allowed = sizes.iter().copied().filter(|size| is_allowed(*size));
        allowed.filter_map(|size| Some((self.jobs[size as usize].front()?.since, size))).min()
    }

    /// Takes jobs of a size up to a bound. Those whose callers have gone are left out: they have not happened.
    fn take(&mut self, size: Size, bounds: &Bounds) -> Jobs<I, A> {
        self.busy[size as usize] += 1;
        let waiting = &mut self.jobs[size as usize];
        let (mut jobs, mut rows) = (Vec::new(), 0_usize);
        while jobs.len() < bounds.group_jobs
            && let Some(next) = waiting.front()
            && (jobs.is_empty() || rows.saturating_add(next.rows) <= bounds.group_rows)
            && let Some(job) = waiting.pop_front()
        {
            self.rows -= job.rows;
            self.bytes -= job.bytes;
            if !job.reply.is_closed() {
                rows = rows.saturating_add(job.rows);
                jobs.push(job);
            }
        }
        jobs
    }
}

/// A writer is with a verb until this is dropped.
pub(crate) struct Slot {
    queues: Arc<WriteQueues>,
    of: fn(&mut VerbQueues) -> &mut [usize; 2],
    size: Size,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.queues.state.lock();
        (self.of)(&mut state.all)[self.size as usize] -= 1;
        state.with_large -= usize::from(self.size == Size::Large);
        drop(state);
        self.queues.wake.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn queues(writers: usize) -> Arc<WriteQueues> {
        let bounds = Bounds {
            jobs: 100,
            rows: 100_000,
            bytes: 100_000,
            age: Duration::from_mins(1),
            group_jobs: 100,
            group_rows: 10_000,
        };
        Arc::new(WriteQueues::new(bounds, writers))
    }

    /// Puts a call in, which is about so many rows.
    async fn put(queues: &Arc<WriteQueues>, verb: Verb, rows: usize) {
        let waits = Arc::clone(queues);
        tokio::spawn(async move {
            let weight = Weight { bytes: 1, rows };
            match verb {
                Verb::Review => drop(waits.call(|verbs| &mut verbs.review, vec![TaskId::new()], weight).await),
                Verb::Start => {
                    let start = Start { id: TaskId::new(), version: 1, worker: "w".to_owned(), grace_millis: 1 };
                    drop(waits.call(|verbs| &mut verbs.start, vec![start], weight).await);
                }
            }
        });
        tokio::task::yield_now().await;
    }

    #[derive(Clone, Copy)]
    enum Verb {
        Review,
        Start,
    }

    /// What a writer would take now: which verb, how many jobs.
    fn take(queues: &Arc<WriteQueues>) -> Option<(&'static str, usize, Slot)> {
        match pin!(queues.take()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Some((WriteBatch::Review(jobs), busy))) => Some(("review", jobs.len(), busy)),
            Poll::Ready(Some((WriteBatch::Start(jobs), busy))) => Some(("start", jobs.len(), busy)),
            Poll::Ready(_) => panic!("nothing else was put in"),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_small_call_is_done_apart_from_large_ones_and_beside_them() {
        let queues = queues(4);
        for rows in [1_000, 1, 1_000, 2] {
            put(&queues, Verb::Review, rows).await;
        }
        let (verb, jobs, large) = take(&queues).unwrap();
        assert_eq!((verb, jobs), ("review", 2));
        put(&queues, Verb::Review, 1_000).await;
        let (verb, jobs, _small) = take(&queues).unwrap();
        assert_eq!((verb, jobs), ("review", 2), "the two small ones");
        assert!(take(&queues).is_none(), "one writer is with the large ones");
        drop(large);
        assert_eq!(take(&queues).unwrap().1, 1);
    }

    #[tokio::test]
    async fn one_hand_is_kept_for_small_calls() {
        let queues = queues(2);
        put(&queues, Verb::Review, 1_000).await;
        put(&queues, Verb::Start, 1_000).await;
        let (_, _, large) = take(&queues).unwrap();
        assert!(take(&queues).is_none(), "the other writer is for small ones");
        put(&queues, Verb::Start, 1).await;
        let (verb, jobs, _small) = take(&queues).unwrap();
        assert_eq!((verb, jobs), ("start", 1));
        drop(large);
        assert_eq!(take(&queues).unwrap().0, "start");
    }

    #[tokio::test]
    async fn many_small_calls_have_as_many_hands_as_ever() {
        let queues = queues(1);
        put(&queues, Verb::Start, 1_000).await;
        assert_eq!(take(&queues).unwrap().1, 1, "a single writer does everything");
    }
}
