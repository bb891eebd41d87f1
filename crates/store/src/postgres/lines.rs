//! The bounded lines between the callers and the hands.
//!
//! There is one line for each verb. Callers put jobs in and are refused at once when too much
//! waits; a hand takes many jobs of one verb and does them in one transaction. So many hands
//! at the most are with one verb at a time, so that a flood of submissions never has them
//! all. A job that has waited for too long is taken back by its caller.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use punctual_core::state::Change;
use punctual_core::store::{Applied, Beat, Claim, Claimed, Inserted, Start, StoreError};
use punctual_core::task::{Hold, NewTask, Task};
use tokio::sync::{Notify, oneshot};

use super::apply::Led;
use super::fault::closed;

/// What may wait in a line at the most, and how much is taken at once.
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

/// The jobs of one verb, on their way to a hand.
pub(crate) enum Group {
    Insert(Jobs<NewTask, Inserted>),
    Claim(Jobs<Claim, Claimed>),
    Start(Jobs<Start, Option<Task>>),
    Apply(Jobs<(TaskId, Change), Applied>),
    ApplyAs(Jobs<Led, Option<Vec<Applied>>>),
    Extend(Jobs<Beat, Option<Hold>>),
    Review(Jobs<TaskId, ()>),
}

/// What a call weighs, for the bounds of its line and of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weight {
    /// Roughly how much memory it holds.
    pub bytes: usize,
    /// Roughly how many rows it touches.
    pub rows: usize,
}

/// The jobs of one verb that wait.
pub(crate) struct Line<I, A> {
    jobs: VecDeque<Job<I, A>>,
    rows: usize,
    bytes: usize,
    /// Hands that are with this verb, and how many may be.
    busy: usize,
    most: usize,
}

/// The lines (see the module).
pub(crate) struct Lines {
    bounds: Bounds,
    state: Mutex<State>,
    wake: Notify,
}

struct State {
    all: All,
    number: u64,
    closed: bool,
}

/// One line for each verb.
pub(crate) struct All {
    pub insert: Line<NewTask, Inserted>,
    pub claim: Line<Claim, Claimed>,
    pub start: Line<Start, Option<Task>>,
    pub apply: Line<(TaskId, Change), Applied>,
    pub apply_as: Line<Led, Option<Vec<Applied>>>,
    pub extend: Line<Beat, Option<Hold>>,
    pub review: Line<TaskId, ()>,
}

/// Chooses the line of a verb.
pub(crate) type Choose<I, A> = fn(&mut All) -> &mut Line<I, A>;

impl Lines {
    /// Lines for so many hands. One claims at a time: what another would skip, having found it locked, costs as much as
    /// what it takes. One is always left that does not insert.
    pub(crate) fn new(bounds: Bounds, hands: usize) -> Self {
        let some = hands.saturating_sub(1).clamp(1, 2);
        let all = All {
            insert: Line::new(some),
            claim: Line::new(1),
            start: Line::new(1),
            apply: Line::new(some),
            apply_as: Line::new(1),
            extend: Line::new(1),
            review: Line::new(1),
        };
        Self { bounds, state: Mutex::new(State { all, number: 0, closed: false }), wake: Notify::new() }
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
            // A hand has it: what becomes of it is told.
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
        let line = choose(&mut state.all);
        if line.is_full(rows, bytes, &self.bounds) {
            return Err(StoreError::Overloaded);
        }
        line.rows += rows;
        line.bytes += bytes;
        line.jobs.push_back(Job { items, reply, since: Instant::now(), number, rows, bytes });
        drop(state);
        self.wake.notify_one();
        Ok(number)
    }

    /// Takes a job back; false if a hand has it already.
    fn withdraw<I, A>(&self, choose: Choose<I, A>, number: u64) -> bool {
        let mut state = self.state.lock();
        let line = choose(&mut state.all);
        let Ok(at) = line.jobs.binary_search_by_key(&number, |job| job.number) else { return false };
        if let Some(job) = line.jobs.remove(at) {
            line.rows -= job.rows;
            line.bytes -= job.bytes;
        }
        true
    }

    /// Waits for jobs, and takes those of the verb whose first has waited longest; none once the lines are closed and
    /// there is nothing left to take.
    pub(crate) async fn take(self: &Arc<Self>) -> Option<(Group, Busy)> {
        loop {
            {
                let mut state = self.state.lock();
                if let Some(taken) = self.take_now(&mut state) {
                    drop(state);
                    // There may be more for the next hand.
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

    fn take_now(self: &Arc<Self>, state: &mut State) -> Option<(Group, Busy)> {
        let bounds = &self.bounds;
        let all = &mut state.all;
        let waits = [
            all.insert.first(),
            all.claim.first(),
            all.start.first(),
            all.apply.first(),
            all.apply_as.first(),
            all.extend.first(),
            all.review.first(),
        ];
        let first = waits.iter().enumerate().filter_map(|(verb, since)| since.map(|since| (since, verb))).min()?.1;
        let busy = |leave: fn(&mut All)| Busy { lines: Arc::clone(self), leave };
        Some(match first {
            0 => (Group::Insert(all.insert.take(bounds)), busy(|all| all.insert.busy -= 1)),
            1 => (Group::Claim(all.claim.take(bounds)), busy(|all| all.claim.busy -= 1)),
            2 => (Group::Start(all.start.take(bounds)), busy(|all| all.start.busy -= 1)),
            3 => (Group::Apply(all.apply.take(bounds)), busy(|all| all.apply.busy -= 1)),
            4 => (Group::ApplyAs(all.apply_as.take(bounds)), busy(|all| all.apply_as.busy -= 1)),
            5 => (Group::Extend(all.extend.take(bounds)), busy(|all| all.extend.busy -= 1)),
            _ => (Group::Review(all.review.take(bounds)), busy(|all| all.review.busy -= 1)),
        })
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
        let All { insert, claim, start, apply, apply_as, extend, review } = &mut state.all;
        insert.jobs.clear();
        claim.jobs.clear();
        start.jobs.clear();
        apply.jobs.clear();
        apply_as.jobs.clear();
        extend.jobs.clear();
        review.jobs.clear();
        drop(state);
        self.wake.notify_one();
    }
}

impl All {
    fn is_empty(&self) -> bool {
        self.insert.jobs.is_empty()
            && self.claim.jobs.is_empty()
            && self.start.jobs.is_empty()
            && self.apply.jobs.is_empty()
            && self.apply_as.jobs.is_empty()
            && self.extend.jobs.is_empty()
            && self.review.jobs.is_empty()
    }
}

impl<I, A> Line<I, A> {
    fn new(most: usize) -> Self {
        Self { jobs: VecDeque::new(), rows: 0, bytes: 0, busy: 0, most }
    }

    fn is_full(&self, rows: usize, bytes: usize, bounds: &Bounds) -> bool {
        !self.jobs.is_empty()
            && (self.jobs.len() >= bounds.jobs
                || self.rows.saturating_add(rows) > bounds.rows
                || self.bytes.saturating_add(bytes) > bounds.bytes)
    }

    /// Since when the first job waits, if a hand may take it.
    fn first(&self) -> Option<Instant> {
        self.jobs.front().filter(|_| self.busy < self.most).map(|job| job.since)
    }

    /// Takes jobs up to a bound. Those whose callers have gone are left out: they have not happened.
    fn take(&mut self, bounds: &Bounds) -> Jobs<I, A> {
        self.busy += 1;
        let (mut jobs, mut rows) = (Vec::new(), 0_usize);
        while jobs.len() < bounds.group_jobs
            && let Some(next) = self.jobs.front()
            && (jobs.is_empty() || rows.saturating_add(next.rows) <= bounds.group_rows)
            && let Some(job) = self.jobs.pop_front()
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

/// A hand is with a verb until this is dropped.
pub(crate) struct Busy {
    lines: Arc<Lines>,
    leave: fn(&mut All),
}

impl Drop for Busy {
    fn drop(&mut self) {
        (self.leave)(&mut self.lines.state.lock().all);
        self.lines.wake.notify_one();
    }
}
