//! A store around a store, with one bug.

use std::sync::Arc;

use async_trait::async_trait;
use punctual_core::coordinator::LeaderLease;
use punctual_core::forward_store;
use punctual_core::ids::{NodeId, TaskId};
use punctual_core::lane::LaneId;
use punctual_core::state::Change;
use punctual_core::store::{Applied, Beat, Claim, Claimed, Head, Inserted, Store, StoreError};
use punctual_core::task::{Hold, NewTask, Task};
use punctual_core::time::Timestamp;

/// The calls of a store that a bug can spoil. By default they are unchanged.
#[async_trait]
pub trait Mischief: Send + Sync {
    /// Spoils [`Store::insert`].
    async fn insert(&self, inner: &Arc<dyn Store>, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        inner.insert(tasks).await
    }

    /// Spoils [`Store::claim`].
    async fn claim(&self, inner: &Arc<dyn Store>, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        inner.claim(claims).await
    }

    /// Spoils [`Store::apply`], one change at a time. With none the change is not written, but is
    /// answered as applied.
    async fn change(&self, _: &Arc<dyn Store>, _: TaskId, change: Change) -> Result<Option<Change>, StoreError> {
        Ok(Some(change))
    }

    /// Spoils the answer of [`Store::apply`] about one change.
    fn applied(&self, _: &Change, applied: Applied) -> Applied {
        applied
    }

    /// Spoils [`Store::extend`].
    async fn extend(&self, inner: &Arc<dyn Store>, beats: Vec<Beat>) -> Result<Vec<Option<Hold>>, StoreError> {
        inner.extend(beats).await
    }

    /// Spoils [`Store::heads`].
    fn heads(&self, heads: Vec<Head>) -> Vec<Head> {
        heads
    }

    /// Spoils [`Store::overdue`].
    fn overdue(&self, tasks: Vec<Task>) -> Vec<Task> {
        tasks
    }
}

/// A store with a bug.
pub struct Spoilt<M> {
    pub inner: Arc<dyn Store>,
    pub mischief: M,
}

impl<M: Mischief> Spoilt<M> {
    /// The changes to write, and for each requested change the one that is written, or none.
    async fn spoil(
        &self,
        changes: Vec<(TaskId, Change)>,
    ) -> Result<(Vec<(TaskId, Change)>, Vec<Option<Change>>), StoreError> {
        let (mut written, mut asked) = (Vec::new(), Vec::new());
        for (id, change) in changes {
            let change = self.mischief.change(&self.inner, id, change).await?;
            written.extend(change.clone().map(|change| (id, change)));
            asked.push(change);
        }
        Ok((written, asked))
    }

    /// The answers to the requested changes, from the answers to the written ones.
    fn answer(&self, asked: Vec<Option<Change>>, applied: Vec<Applied>) -> Vec<Applied> {
        let mut applied = applied.into_iter();
        let each = asked.into_iter().map(|change| match change {
            Some(change) => applied.next().map(|applied| self.mischief.applied(&change, applied)),
            None => Some(Applied::Done(None)),
        });
        each.map(|answer| answer.unwrap_or(Applied::Lost)).collect()
    }
}

#[async_trait]
impl<M: Mischief> Store for Spoilt<M> {
    async fn insert(&self, tasks: Vec<NewTask>) -> Result<Vec<Inserted>, StoreError> {
        self.mischief.insert(&self.inner, tasks).await
    }

    async fn claim(&self, claims: Vec<Claim>) -> Result<Vec<Claimed>, StoreError> {
        self.mischief.claim(&self.inner, claims).await
    }

    async fn apply(&self, changes: Vec<(TaskId, Change)>) -> Result<Vec<Applied>, StoreError> {
        let (written, asked) = self.spoil(changes).await?;
        Ok(self.answer(asked, self.inner.apply(written).await?))
    }

    async fn apply_as(
        &self,
        lease: &LeaderLease,
        changes: Vec<(TaskId, Change)>,
    ) -> Result<Option<Vec<Applied>>, StoreError> {
        let (written, asked) = self.spoil(changes).await?;
        Ok(self.inner.apply_as(lease, written).await?.map(|applied| self.answer(asked, applied)))
    }

    async fn extend(&self, beats: Vec<Beat>) -> Result<Vec<Option<Hold>>, StoreError> {
        self.mischief.extend(&self.inner, beats).await
    }

    async fn heads(&self, after: Option<LaneId>, before: Timestamp, limit: usize) -> Result<Vec<Head>, StoreError> {
        self.inner.heads(after, before, limit).await.map(|heads| self.mischief.heads(heads))
    }

    async fn overdue(&self, dead: Vec<NodeId>, limit: usize) -> Result<Vec<Task>, StoreError> {
        self.inner.overdue(dead, limit).await.map(|tasks| self.mischief.overdue(tasks))
    }

    forward_store!(inner: insert_all, start, get, live, results, list, counts, live_counts, quarantined, check, close);
}
