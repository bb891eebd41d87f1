//! The port through which what is over is removed: tasks that came to rest long ago with all
//! that hangs on them, idempotency keys that nobody can be retrying any more, and the minutes of the
//! forecast that are past.
//!
//! The leader calls it, step by step. Every step is conditional on what the rows say, so that
//! two leaders for a moment do no harm.
//!
//! # Contract
//!
//! - `history_past_its_time_goes`: step by step, until a step says that there is no more: what came to rest before the
//!   instant is neither read nor listed nor driven again. A store that keeps its history by months may keep it until
//!   all of its month is past.
//! - `nothing_younger_and_nothing_live_goes`: whatever came to rest at the instant or after it stays as it is, and so
//!   does every task that did not come to rest, however old it is.
//! - `a_step_is_small`: it removes as many as it may at the most (a month goes as a whole).
//! - `what_is_gone_never_comes_back`: neither by a change that was decided before nor after a restart.
//! - `keys_past_their_life_are_free_again`: a key that was used before the instant can be used for another task.
//! - `a_key_of_a_live_task_is_kept`: however old it is; and a younger key is, too.
//! - `a_key_may_outlive_its_task`: it is refused then, for the same content too: what was done is not done again.
//! - `minutes_that_are_past_go`: of the forecast, step by step; the one that lasts and those to come stay as they are.

use async_trait::async_trait;

use crate::store::StoreError;
use crate::time::Timestamp;

/// What a step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// How many were removed, as far as they were counted.
    pub removed: u64,
    /// Whether there may be more: the next step goes on where this one ended.
    pub more: bool,
}

/// Removes what is over (see the module's contract).
#[async_trait]
pub trait Retention: Send + Sync {
    /// Removes at most `limit` tasks that came to rest before `before`.
    async fn prune_history(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError>;

    /// Frees at most `limit` idempotency keys that were used before `before` and whose tasks are not live.
    async fn prune_keys(&self, before: Timestamp, limit: usize) -> Result<Pruned, StoreError>;

    /// Removes at most `limit` entries of the workers' ledger that have expired by `now`, where the store has one.
    async fn prune_ledger(&self, _now: Timestamp, _limit: usize) -> Result<Pruned, StoreError> {
        Ok(Pruned::default())
    }

    /// Removes at most `limit` counts of minutes that are past by `now`.
    async fn prune_forecast(&self, now: Timestamp, limit: usize) -> Result<Pruned, StoreError>;
}
