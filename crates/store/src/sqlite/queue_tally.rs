//! How the transaction under way changes the counts of live tasks, by queue and state.
//!
//! The outbox records every change here, beside the tally by lane, and the writer adds the changes
//! to `queue_counts` before it commits. A limit needs the number of live tasks of its queue for
//! every task: the stored counts and this tally give it, however many lanes the queue has.

use std::collections::HashMap;

use punctual_core::state::State;

/// The tasks added to a queue less those removed, by state.
type StateChanges = [i64; LIVE_STATES];

/// The number of states that a live task can be in. Their codes count from zero.
const LIVE_STATES: usize = 4;

/// The changes by tenant and queue.
#[derive(Default)]
struct QueueChanges(HashMap<String, HashMap<String, StateChanges>>);

/// The changes of a transaction (see the module).
#[derive(Default)]
pub(crate) struct QueueTally {
    /// The changes of finished jobs.
    group: QueueChanges,
    /// The changes of the current job.
    job: QueueChanges,
}

impl QueueTally {
    /// Counts `tasks` more tasks of a queue in a live state; a negative number takes them away.
    pub(crate) fn add(&mut self, tenant: &str, queue: &str, state: State, tasks: i64) {
        self.job.of(tenant, queue)[usize::from(state.code())] += tasks;
    }

    /// By how much the transaction has changed the counts of a queue so far, over these states.
    pub(crate) fn change(&self, tenant: &str, queue: &str, states: &[State]) -> i64 {
        let changes = [&self.group, &self.job].into_iter().filter_map(|changes| changes.get(tenant, queue));
        changes.flat_map(|changes| states.iter().map(|state| changes[usize::from(state.code())])).sum()
    }

    /// The current job is done.
    pub(crate) fn keep(&mut self) {
        for (tenant, queue, changes) in self.job.drain() {
            add(self.group.of(&tenant, &queue), changes);
        }
    }

    /// The current job was rolled back.
    pub(crate) fn forget(&mut self) {
        self.job.0.clear();
    }

    /// The transaction was rolled back, or a new one begins.
    pub(crate) fn clear(&mut self) {
        self.job.0.clear();
        self.group.0.clear();
    }

    /// Takes the changes of the transaction: tenant, queue, state and number of tasks. Those of all
    /// queues together have neither tenant nor queue.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (String, String, u8, i64)> + use<> {
        debug_assert!(self.job.0.is_empty(), "a job is kept or forgotten before the commit");
        let mut queues: Vec<(String, String, StateChanges)> = self.group.drain().collect();
        let mut all = StateChanges::default();
        for (_, _, changes) in &queues {
            add(&mut all, *changes);
        }
        queues.push((String::new(), String::new(), all));
        queues.into_iter().flat_map(|(tenant, queue, changes)| {
            let changed = (0_u8..).zip(changes).filter(|(_, tasks)| *tasks != 0);
            changed.map(move |(state, tasks)| (tenant.clone(), queue.clone(), state, tasks))
        })
    }
}

fn add(to: &mut StateChanges, changes: StateChanges) {
    to.iter_mut().zip(changes).for_each(|(to, tasks)| *to += tasks);
}

impl QueueChanges {
    fn get(&self, tenant: &str, queue: &str) -> Option<&StateChanges> {
        self.0.get(tenant)?.get(queue)
    }

    /// The changes of a queue. It is called for every task that moves, so it makes no string for a
    /// queue that it knows.
    fn of(&mut self, tenant: &str, queue: &str) -> &mut StateChanges {
        if self.get(tenant, queue).is_none() {
            self.0.entry(tenant.to_owned()).or_default().insert(queue.to_owned(), StateChanges::default());
        }
        let queues = self.0.get_mut(tenant).expect("invariant: the tenant was put in");
        queues.get_mut(queue).expect("invariant: the queue was put in")
    }

    fn drain(&mut self) -> impl Iterator<Item = (String, String, StateChanges)> + use<> {
        std::mem::take(&mut self.0).into_iter().flat_map(|(tenant, queues)| {
            queues.into_iter().map(move |(queue, changes)| (tenant.clone(), queue, changes))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_jobs_that_are_kept_are_counted() {
        let mut tally = QueueTally::default();
        tally.add("t", "q", State::Pending, 3);
        tally.keep();
        tally.add("t", "q", State::Pending, -1);
        tally.add("t", "q", State::Running, 1);
        let held = [State::Queued, State::Running];
        assert_eq!((tally.change("t", "q", &[State::Pending]), tally.change("t", "q", &held)), (2, 1));
        assert_eq!(tally.change("other", "q", &held), 0);
        tally.forget();
        assert_eq!((tally.change("t", "q", &[State::Pending]), tally.change("t", "q", &held)), (3, 0));
        tally.add("t", "other", State::Pending, -3);
        tally.add("t", "q", State::Queued, 1);
        tally.keep();
        let mut taken: Vec<_> = tally.take().collect();
        taken.sort_unstable();
        let row = |tenant: &str, queue: &str, state: State, tasks| (tenant.into(), queue.into(), state.code(), tasks);
        let of_q = [row("t", "q", State::Pending, 3), row("t", "q", State::Queued, 1)];
        let of_all = row("", "", State::Queued, 1);
        assert_eq!(taken, [&[of_all, row("t", "other", State::Pending, -3)], &of_q[..]].concat());
        assert_eq!(tally.take().count(), 0);
    }
}
