//! A store that fails on demand, and counts the tasks of its calls.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use punctual_core::forward_store;
use punctual_core::ids::TaskId;
use punctual_core::state::Change;
use punctual_core::store::{Applied, Start, Store, StoreError, TaskResult};
use punctual_core::task::Task;

/// What happens to a call.
#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// It fails and nothing was done.
    Refused,
    /// It fails and everything was done.
    Unanswered,
    /// It never returns.
    Hangs,
    /// It fails for good if it concerns this task.
    Corrupt(TaskId),
}

pub struct Faulty {
    inner: Arc<dyn Store>,
    /// The fates of the next calls to `start`, `apply` and `results`; further calls succeed.
    pub starts: Mutex<VecDeque<Fate>>,
    pub applies: Mutex<VecDeque<Fate>>,
    pub reads: Mutex<VecDeque<Fate>>,
    /// How many tasks each of these calls had.
    pub started: Mutex<Vec<usize>>,
    pub applied: Mutex<Vec<usize>>,
    pub read: Mutex<Vec<usize>>,
}

impl Faulty {
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            starts: Mutex::default(),
            applies: Mutex::default(),
            reads: Mutex::default(),
            started: Mutex::default(),
            applied: Mutex::default(),
            read: Mutex::default(),
        }
    }
}

async fn meet<T>(
    fate: Option<Fate>,
    ids: &[TaskId],
    call: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let unavailable = || Err(StoreError::Unavailable("on demand".to_owned()));
    match fate {
        Some(Fate::Refused) => unavailable(),
        Some(Fate::Unanswered) => {
            call.await?;
            unavailable()
        }
        Some(Fate::Hangs) => std::future::pending().await,
        Some(Fate::Corrupt(id)) if ids.contains(&id) => Err(StoreError::Corrupt("on demand".to_owned())),
        None | Some(Fate::Corrupt(_)) => call.await,
    }
}

#[async_trait]
impl Store for Faulty {
    async fn start(&self, starts: Vec<Start>) -> Result<Vec<Option<Task>>, StoreError> {
        self.started.lock().unwrap().push(starts.len());
        let fate = self.starts.lock().unwrap().pop_front();
        let ids: Vec<TaskId> = starts.iter().map(|start| start.id).collect();
        meet(fate, &ids, self.inner.start(starts)).await
    }

    async fn apply(&self, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError> {
        self.applied.lock().unwrap().push(changes.len());
        let fate = self.applies.lock().unwrap().pop_front();
        let ids: Vec<TaskId> = changes.iter().map(|(id, _)| *id).collect();
        meet(fate, &ids, self.inner.apply(changes)).await
    }

    async fn results(&self, ids: Vec<TaskId>, max_bytes: usize) -> Result<Vec<Option<TaskResult>>, StoreError> {
        self.read.lock().unwrap().push(ids.len());
        let fate = self.reads.lock().unwrap().pop_front();
        meet(fate, &ids.clone(), self.inner.results(ids, max_bytes)).await
    }

    forward_store!(inner: insert, insert_all, claim, apply_as, extend, get, live, list, heads, overdue, counts, live_counts, quarantined, check, close);
}
