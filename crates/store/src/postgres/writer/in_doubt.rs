//! Tasks in doubt: the connection broke before the commit of their claim or start was answered.
//!
//! The caller got an error, so no worker runs such a task, but the row may say that it is held. It
//! is given back once the row shows the hold of that very claim. The transaction may still commit
//! until the server notices the lost connection, so the row is polled.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use punctual_core::state::{By, Change, Event, Position};
use punctual_core::store::Applied;
use punctual_core::task::Hold;
use tokio::sync::Notify;
use tracing::info;

use super::WriterShared;
use crate::claims::expect_change;
use crate::write_queue::Weight;

/// The poll interval, and the number of polls that a server answers. Together they are longer than
/// the server's TCP timeout, so that a commit in flight has surfaced.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const POLLS_MAX: usize = 60;

/// The maximum number of tasks that are kept; the holds of the others run out.
const TASKS_MAX: usize = 100_000;

/// About how much memory the poll of one task takes.
const TASK_BYTES: usize = 256;

/// The tasks in doubt (see the module).
#[derive(Default)]
pub(crate) struct TasksInDoubt {
    noted: Mutex<Vec<TaskInDoubt>>,
    wake: Notify,
}

#[derive(Clone)]
struct TaskInDoubt {
    id: TaskId,
    give_back: Change,
    polls_left: usize,
}

impl TasksInDoubt {
    /// Notes tasks whose claim or start may have been committed.
    pub(crate) fn note<'a>(&self, tasks: impl Iterator<Item = (TaskId, Position, &'a Hold)>, by: &By<'_>) {
        let doubt = |(id, position, hold): (TaskId, Position, &Hold)| {
            // A task that was claimed ahead of its due instant is not due before it.
            let give_back = expect_change(&position, Event::GiveBack(hold.since.max(by.now)), by);
            TaskInDoubt { id, give_back: give_back.expecting_hold(Some(hold)), polls_left: POLLS_MAX }
        };
        let mut noted = self.noted.lock();
        let room = TASKS_MAX.saturating_sub(noted.len());
        noted.extend(tasks.take(room).map(doubt));
        drop(noted);
        self.wake.notify_one();
    }

    /// Gives back the tasks that no worker runs, until the queues are closed.
    pub(crate) async fn run(shared: Arc<WriterShared>) {
        let in_doubt = &shared.in_doubt;
        while !shared.write_queues.is_closed() {
            if in_doubt.noted.lock().is_empty() {
                in_doubt.wake.notified().await;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
            in_doubt.poll(&shared).await;
        }
    }

    async fn poll(&self, shared: &WriterShared) {
        let some: Vec<(TaskId, Change)> =
            self.noted.lock().iter().map(|doubt| (doubt.id, doubt.give_back.clone())).collect();
        let weight = Weight { bytes: some.len() * TASK_BYTES, rows: some.len() };
        let Ok(applied) = shared.write_queues.call(|verbs| &mut verbs.apply, some, weight).await else { return };
        let mut given_back = 0;
        let mut applied = applied.into_iter();
        // Tasks that were noted since are behind those that were polled.
        self.noted.lock().retain_mut(|doubt| match applied.next() {
            Some(Applied::Done(_)) => {
                given_back += 1;
                false
            }
            Some(Applied::Lost | Applied::TooManyLanes(_)) => {
                doubt.polls_left -= 1;
                doubt.polls_left > 0
            }
            None => true,
        });
        if given_back > 0 {
            info!(tasks = given_back, "gave back tasks that were claimed when the connection to PostgreSQL broke");
        }
    }
}
