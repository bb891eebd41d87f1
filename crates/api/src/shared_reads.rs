//! Reads of single tasks that come at the same time, in few calls to the store.
//!
//! `GET /v1/tasks/{id}?wait_seconds=` reads a task here when it may have finished: the tasks of a
//! batch finish at once, and each of them may have a client. While one read is under way, the next
//! ones gather. Bounded: no more ask here than clients may wait. Invariant: a caller may be dropped
//! at any point, also while it reads for others; they ask again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use punctual_core::ids::TaskId;
use punctual_core::store::{Store, StoreError};
use punctual_core::task::Task;
use tokio::sync::oneshot;

/// The maximum number of tasks in one read: they come with their payloads.
const READ_TASKS: usize = 64;

/// Reads that gather (see the module).
pub struct SharedReads {
    store: Arc<dyn Store>,
    asked: Mutex<HashMap<String, VecDeque<AskedTask>>>,
    /// Held by the caller that reads for all.
    turn: tokio::sync::Mutex<()>,
}

struct AskedTask {
    id: TaskId,
    answer: oneshot::Sender<Result<Option<Task>, StoreError>>,
}

impl SharedReads {
    /// Reads from this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, asked: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Reads a task of a tenant. An unreadable one is none.
    pub async fn get(&self, tenant: &str, id: TaskId) -> Result<Option<Task>, StoreError> {
        let mut found = self.ask(tenant, id);
        loop {
            tokio::select! {
                biased;
                answer = &mut found => match answer {
                    Ok(answer) => return answer,
                    // The call that read for this one was dropped.
                    Err(_) => found = self.ask(tenant, id),
                },
                _turn = self.turn.lock() => self.read_first(tenant).await,
            }
        }
    }

    fn ask(&self, tenant: &str, id: TaskId) -> oneshot::Receiver<Result<Option<Task>, StoreError>> {
        let (answer, found) = oneshot::channel();
        self.asked.lock().entry(tenant.to_owned()).or_default().push_back(AskedTask { id, answer });
        found
    }

    /// Reads for those of a tenant that asked first.
    async fn read_first(&self, tenant: &str) {
        let first = self.take_first(tenant);
        if first.is_empty() {
            return;
        }
        let ids: BTreeSet<TaskId> = first.iter().map(|asked| asked.id).collect();
        let ids: Vec<TaskId> = ids.into_iter().collect();
        let found = match self.store.get(tenant, ids.clone()).await {
            Ok(found) => Ok(ids.into_iter().zip(found).collect::<HashMap<_, _>>()),
            Err(error) => Err(error),
        };
        for AskedTask { id, answer } in first {
            let task = found.as_ref().map(|found| found.get(&id).cloned().flatten()).map_err(Clone::clone);
            // Who has hung up needs no answer.
            drop(answer.send(task));
        }
    }

    fn take_first(&self, tenant: &str) -> Vec<AskedTask> {
        let mut asked = self.asked.lock();
        let Some(waiting) = asked.get_mut(tenant) else { return Vec::new() };
        let mut first = Vec::new();
        while first.len() < READ_TASKS
            && let Some(next) = waiting.pop_front()
        {
            if !next.answer.is_closed() {
                first.push(next);
            }
        }
        if waiting.is_empty() {
            asked.remove(tenant);
        }
        first
    }
}
