//! The port of queues: their settings, their limits and their pauses.
//!
//! A queue exists from its first use, without settings. Settings and pauses are in the store, so
//! every node follows them: a claim reads the limits of its lanes' queues in its own transaction.
//! There is no separate counter of running tasks. The number of tasks that are `QUEUED` or
//! `RUNNING` is the count, so no crash can leak a place.
//!
//! # Contract
//! Each sentence is a test of the same name in `testkit::queues`.
//!
//! - `put_replaces_the_settings`: nothing remains of earlier settings. Every change raises the
//!   version, and a pause stays.
//! - `an_unchanged_queue_is_not_written`: settings or a resumption that change nothing leave the
//!   version.
//! - `settings_and_pauses_outlive_the_process`: they are durable when the call returns.
//! - `a_queue_exists_from_its_first_use`: it is shown from its first task, setting or pause on.
//! - `a_removed_queue_is_shown_while_it_has_tasks`: it has neither settings nor a pause, its
//!   version grows, and the next setting or pause brings it back.
//! - `a_change_may_need_a_version`: otherwise nothing changes, and the answer is the queue as it
//!   is. A queue that is not shown has no version.
//! - `queues_are_listed_by_name_with_their_live_tasks`: page by page, each with its tasks by state.
//! - `counts_of_a_queue_are_the_sum_of_its_lanes`: however its tasks move.
//! - `queues_of_tenants_are_apart`: a limit or a pause of one tenant's queue affects no other
//!   tenant.
//! - `changed_queues_are_read_once`: of all tenants. From zero on they are the queues that are set
//!   or paused; from a number on those that changed since, and the removed ones among them.
//! - `a_paused_queue_gives_nothing`: a claim takes from the others, and its answer names the lanes
//!   that were held back, and until when.
//! - `a_pause_ends_by_itself`: from its end on tasks are claimed again, without a call.
//! - `a_pause_holds_for_claims_under_way`: once the call returns no claim takes anything, including
//!   claims already in progress.
//! - `no_more_run_at_once_than_the_limit`: in all lanes of the queue together, under any number of
//!   concurrent claims.
//! - `a_place_is_free_again_however_its_task_leaves`: completed, failed, given back, taken back or
//!   cancelled.
//! - `a_lowered_limit_holds_for_later_claims`: running tasks go on, and nothing is claimed until
//!   fewer run than the limit.
//! - `no_more_are_taken_than_there_are_tokens`: the burst at once, then as many as have flowed in.
//!   The claim's answer says when the next claim is worthwhile.
//! - `tokens_outlive_the_process`: a restart does not fill the bucket.
//! - `insert_refuses_what_is_over_the_depth`: it answers
//!   [`Inserted::QueueFull`](crate::store::Inserted::QueueFull) and stores neither the task nor its
//!   key. Other tasks of the batch are stored.
//! - `insert_is_bounded_by_the_depth_under_concurrency`: exactly as many are stored as there is
//!   room for.
//! - `insert_replays_a_task_of_a_full_queue`: a replay needs no room.
//! - `insert_refuses_an_unknown_dependency_before_a_full_queue`: room would not help such a task.
//!   The tasks of its batch that depend on it are refused in the same way.
//! - `a_queue_with_unreadable_settings_is_paused`: only this queue, from the first time that a node
//!   reads it. The pause gives the reason. Setting the queue again and resuming it ends the pause.
//! - `limit_changes_name_freed_places`: a hint for dispatchers whose claims were limited.
//! - `no_more_of_a_key_run_at_once_than_the_limit`: of tasks with one concurrency key, in all lanes
//!   of the queue together, under any number of concurrent claims.
//! - `a_full_key_holds_up_no_other`: its tasks are parked, so that later claims do not read them.
//! - `a_place_of_a_key_is_free_again_however_its_task_leaves`: completed, failed, given back, taken
//!   back or cancelled. The resolver then wakes a parked task of the key.
//! - `a_woken_task_that_leaves_wakes_another`: cancelled, expired, or moved to another queue.
//! - `a_raised_limit_per_key_lets_more_run`: without a review; so does a limit that is removed, and
//!   a queue that is.
//! - `a_review_wakes_what_was_forgotten`: a parked task waits for a review at most.
//! - `keys_of_queues_are_apart`: a key of one queue or tenant takes no place of another's.
//! - `tasks_without_a_key_are_not_limited_by_key`: nor are tasks with a key, while their queue has
//!   no limit per key.
//! - `an_ordering_key_keeps_its_order_under_a_limit_per_key`: a parked task keeps its turn.
//!
//! Every await may be dropped: the call then happens or not, and nothing stays locked.

mod rate;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::retry::RetryPolicy;
use crate::store::StoreError;
use crate::task::Callback;
use crate::time::Timestamp;

pub use rate::{Bucket, RateLimit, TokenFlow};

/// The bounds of settings, which the API enforces.
pub mod limits {
    /// The maximum of `max_concurrency`.
    pub const CONCURRENCY: u32 = 1_000_000;
    /// The maximum of `max_per_key`. A claim counts the held tasks of every key that it meets.
    pub const PER_KEY: u32 = 10_000;
    /// The maximum of a rate and of a burst.
    pub const RATE: u32 = 1_000_000;
    /// The minimum of a rate: one task in about three hours.
    pub const RATE_MIN: f64 = 0.000_1;
    /// The maximum of `max_depth`.
    pub const DEPTH: u64 = 1_000_000_000;
    /// The longest dispatch jitter: an hour.
    pub const JITTER_MILLIS: u64 = 3_600_000;
    /// The maximum number of characters of a pause's reason.
    pub const REASON: usize = 1_024;
}

/// The settings of a queue. A new queue has none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The maximum number of its tasks that are `QUEUED` or `RUNNING` at once.
    pub max_concurrency: Option<u32>,
    /// The maximum number of its tasks with one concurrency key that are `QUEUED` or `RUNNING` at
    /// once. None: concurrency keys have no effect.
    pub max_per_key: Option<u32>,
    /// How fast its tasks may start.
    pub rate_limit: Option<RateLimit>,
    /// The maximum number of its live tasks; further submissions are refused.
    pub max_depth: Option<u64>,
    /// How its tasks are retried, unless they have their own policy.
    pub retry_policy: Option<RetryPolicy>,
    /// How long one run of its tasks may take, unless they have their own timeout.
    pub timeout_millis: Option<u64>,
    /// Each of its tasks becomes due up to this much after its `execute_at`.
    pub dispatch_jitter_millis: u64,
    /// What happens to the tasks behind a dead letter.
    pub on_dead_letter: OnDeadLetter,
    /// Where its tasks are pushed to, unless they have their own callback.
    pub callback: Option<Callback>,
}

impl Settings {
    /// Whether claims are limited.
    pub fn limits_claims(&self) -> bool {
        self.max_concurrency.is_some() || self.max_per_key.is_some() || self.rate_limit.is_some()
    }

    /// Whether more tasks of a concurrency key may run than under `before`.
    fn widens_keys(&self, before: &Settings) -> bool {
        before.max_per_key.is_some_and(|before| self.max_per_key.is_none_or(|most| most > before))
    }
}

/// What happens to tasks with the ordering key of a dead letter, and to its dependents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDeadLetter {
    /// They continue, by their own policies.
    #[default]
    Continue,
    /// They wait until the dead letter is re-driven.
    Hold,
}

/// A pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// Since when.
    pub since: Timestamp,
    /// On whose behalf.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
    /// Until when; none means until it is resumed.
    pub until: Option<Timestamp>,
}

/// A queue: its settings and its pause.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// Its tenant.
    pub tenant: String,
    /// Its name.
    pub name: String,
    /// Its settings.
    pub settings: Settings,
    /// The last pause that no client has ended. Its `until` may have passed.
    pub pause: Option<Pause>,
    /// How often it was set, paused, resumed or removed.
    pub version: u64,
    /// The number of its last change, in the order of the changes of all queues. Zero: there was
    /// none.
    pub change_number: u64,
    /// Whether it was removed, and not set or paused since. Then it is shown only while it has live
    /// tasks.
    pub removed: bool,
}

impl Queue {
    /// A queue without settings.
    pub fn unset(tenant: &str, name: &str) -> Self {
        let (tenant, name) = (tenant.to_owned(), name.to_owned());
        Self { tenant, name, settings: Settings::default(), pause: None, version: 0, change_number: 0, removed: false }
    }

    /// The pause that it is in at `now`.
    pub fn paused(&self, now: Timestamp) -> Option<&Pause> {
        self.pause.as_ref().filter(|pause| pause.until.is_none_or(|until| until > now))
    }

    /// Whether claims are limited, or may be stopped by a pause.
    pub fn limits_claims(&self) -> bool {
        self.settings.limits_claims() || self.pause.is_some()
    }
}

/// The live tasks of a queue, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveCounts {
    /// Waiting for the tasks they depend on.
    pub blocked: u64,
    /// Waiting for their time or for a claimant.
    pub pending: u64,
    /// Claimed and dispatched.
    pub queued: u64,
    /// With a worker.
    pub running: u64,
}

impl LiveCounts {
    /// How many there are.
    pub fn total(&self) -> u64 {
        self.blocked.saturating_add(self.pending).saturating_add(self.queued).saturating_add(self.running)
    }

    /// Whether there is any.
    pub fn any(&self) -> bool {
        self.total() > 0
    }
}

/// A queue and its live tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueWithCounts {
    /// The queue.
    pub queue: Queue,
    /// Its live tasks.
    pub live: LiveCounts,
}

/// A change of a queue.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a queue is changed now and then, one at a time")]
pub enum QueueChange {
    /// Replaces the settings. With a switch it also pauses or resumes the queue.
    Put(Settings, Option<Switch>),
    /// Pauses it, and replaces the reason and the end of an earlier pause.
    Pause(Pause),
    /// Ends the pause.
    Resume,
    /// Removes the settings and the pause. The queue is shown only while it has live tasks.
    Remove,
}

/// What replacing the settings does to the pause.
#[derive(Clone, Debug, PartialEq)]
pub enum Switch {
    /// Pauses the queue. An existing pause keeps its reason and its end.
    On(Pause),
    /// Ends the pause at this instant.
    Off(Timestamp),
}

impl Switch {
    /// Whether the queue is already in this position.
    fn is_set(&self, queue: &Queue) -> bool {
        match self {
            Switch::On(pause) => queue.paused(pause.since).is_some(),
            // Clients do not see a pause that is over.
            Switch::Off(now) => queue.paused(*now).is_none(),
        }
    }
}

/// The decision about a change of a queue, the same for both stores.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueDecision {
    /// Nothing is written, and this is the answer.
    Answer(Changed),
    /// This queue is written.
    Write {
        /// The queue after the change.
        queue: Queue,
        /// Whether tasks that wait may go on, so that the resolver must look at them: it stops
        /// holding the tasks behind its dead letters, or allows more tasks of a concurrency key.
        releases_tasks: bool,
    },
}

impl QueueChange {
    /// Decides about the change. `stored` is the queue's row, if it has one. `shown` is what
    /// callers see of it: a queue that was removed is shown only while it has live tasks.
    pub fn decide(
        self,
        (tenant, name): (&str, &str),
        condition: &Condition,
        stored: Option<Queue>,
        shown: Option<Queue>,
    ) -> QueueDecision {
        if !condition.holds(shown.as_ref().map(|queue| queue.version)) {
            return QueueDecision::Answer(Changed::AtAnother(shown));
        }
        if let Some(queue) = shown.filter(|queue| self.is_done(queue)) {
            return QueueDecision::Answer(Changed::Done(queue));
        }
        // A removed queue keeps its version, so that versions only grow.
        let before = stored.unwrap_or_else(|| Queue::unset(tenant, name));
        let settings = before.settings.clone();
        let queue = self.apply(before);
        let holds = |settings: &Settings| settings.on_dead_letter == OnDeadLetter::Hold;
        let stops_holding = holds(&settings) && !holds(&queue.settings);
        QueueDecision::Write { releases_tasks: stops_holding || queue.settings.widens_keys(&settings), queue }
    }

    /// Whether it would leave a shown queue as it is, so that nothing is written.
    pub fn is_done(&self, queue: &Queue) -> bool {
        match self {
            QueueChange::Put(settings, switch) => {
                let is_set = switch.as_ref().is_none_or(|switch| switch.is_set(queue));
                !queue.removed && *settings == queue.settings && is_set
            }
            QueueChange::Resume => queue.pause.is_none(),
            QueueChange::Pause(_) | QueueChange::Remove => false,
        }
    }

    /// The queue after it.
    #[must_use]
    pub fn apply(self, before: Queue) -> Queue {
        let version = before.version + 1;
        match self {
            QueueChange::Put(settings, switch) => {
                let pause = match switch {
                    Some(Switch::On(pause)) if before.paused(pause.since).is_none() => Some(pause),
                    Some(Switch::Off(_)) => None,
                    Some(Switch::On(_)) | None => before.pause,
                };
                Queue { settings, pause, version, removed: false, ..before }
            }
            QueueChange::Pause(pause) => Queue { pause: Some(pause), version, removed: false, ..before },
            QueueChange::Resume => Queue { pause: None, version, ..before },
            QueueChange::Remove => Queue { version, removed: true, ..Queue::unset(&before.tenant, &before.name) },
        }
    }
}

/// The result of a change with a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Changed {
    /// The queue after the change.
    Done(Queue),
    /// The condition does not hold: the unchanged queue; none if it is not shown.
    AtAnother(Option<Queue>),
}

/// Changes since the last call. These are hints: they may be lost or wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitChanges {
    /// Whether a queue was set, paused or resumed.
    pub changed: bool,
    /// The queues (tenant and name) in which places came free.
    pub freed: Vec<(String, String)>,
}

/// The settings and pauses of queues (see the module's contract).
#[async_trait]
pub trait Queues: Send + Sync {
    /// Changes a queue. Returns it as it is afterwards.
    async fn change_queue(&self, tenant: &str, name: &str, change: QueueChange) -> Result<Queue, StoreError> {
        self.change_queue_at(tenant, name, &Condition::default(), change).await.map(|changed| match changed {
            Changed::Done(queue) | Changed::AtAnother(Some(queue)) => queue,
            Changed::AtAnother(None) => Queue::unset(tenant, name),
        })
    }

    /// Changes a queue if the condition holds. A queue with tasks that was never set is at version
    /// 0.
    async fn change_queue_at(
        &self,
        tenant: &str,
        name: &str,
        condition: &Condition,
        change: QueueChange,
    ) -> Result<Changed, StoreError>;

    /// Reads a queue.
    async fn queue(&self, tenant: &str, name: &str) -> Result<Option<QueueWithCounts>, StoreError>;

    /// Lists the queues of a tenant by name, strictly after `after`.
    async fn queues(
        &self,
        tenant: &str,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<QueueWithCounts>, StoreError>;

    /// Lists the queues of all tenants that changed after a number, removed ones too; from zero on
    /// every queue that is set or paused. Every node caches these.
    async fn queues_changed_since(&self, after: u64) -> Result<Vec<Queue>, StoreError>;

    /// Waits for a change that may let a limited claim continue.
    async fn wait_for_limit_changes(&self) -> LimitChanges;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn pause(until: Option<i64>) -> Pause {
        Pause { since: at(5), by: "client".to_owned(), reason: None, until: until.map(at) }
    }

    #[test]
    fn a_pause_is_over_from_its_end_on() {
        let queue = QueueChange::Pause(pause(Some(10))).apply(Queue::unset("t", "q"));
        assert!(queue.paused(at(9)).is_some());
        assert!(queue.paused(at(10)).is_none());
        let queue = QueueChange::Pause(pause(None)).apply(queue);
        assert!(queue.paused(at(i64::MAX)).is_some());
        assert_eq!((queue.version, QueueChange::Resume.apply(queue).pause), (2, None));
    }

    #[test]
    fn settings_replace_settings_and_leave_the_pause() {
        let queue = QueueChange::Pause(pause(None)).apply(Queue::unset("t", "q"));
        let settings = Settings { max_depth: Some(3), ..Settings::default() };
        let queue = QueueChange::Put(settings.clone(), None).apply(queue);
        assert_eq!((&queue.settings, &queue.pause), (&settings, &Some(pause(None))));
        let queue = QueueChange::Put(Settings::default(), Some(Switch::Off(at(6)))).apply(queue);
        assert_eq!((queue.settings, queue.pause, queue.version), (Settings::default(), None, 3));
    }

    #[test]
    fn a_change_is_checked_against_the_queue_that_is_shown() {
        let put = |settings: Settings| QueueChange::Put(settings, None);
        let decide = |change: QueueChange, at: Option<u64>, stored: Option<Queue>, shown: Option<Queue>| {
            let condition = at.map_or_else(Condition::default, |version| Condition::at([version]));
            change.decide(("t", "q"), &condition, stored, shown)
        };
        let hold = Settings { on_dead_letter: OnDeadLetter::Hold, ..Settings::default() };
        let holds = put(hold.clone()).apply(Queue::unset("t", "q"));
        let (stored, shown) = (Some(holds.clone()), Some(holds.clone()));
        let decided = decide(put(hold.clone()), Some(7), stored.clone(), shown.clone());
        assert_eq!(decided, QueueDecision::Answer(Changed::AtAnother(shown.clone())));
        let decided = decide(put(hold), Some(1), stored.clone(), shown.clone());
        assert_eq!(decided, QueueDecision::Answer(Changed::Done(holds.clone())));
        let decided = decide(put(Settings::default()), Some(1), stored, shown);
        assert!(matches!(decided, QueueDecision::Write { releases_tasks: true, queue } if queue.version == 2));
        let removed = QueueChange::Remove.apply(holds);
        let decided = decide(QueueChange::Pause(pause(None)), None, Some(removed), None);
        assert!(matches!(decided, QueueDecision::Write { releases_tasks: false, queue } if queue.version == 3));
        let decided = decide(QueueChange::Resume, None, None, None);
        assert!(matches!(decided, QueueDecision::Write { queue, .. } if queue.version == 1));
    }

    #[test]
    fn a_change_without_effect_is_done() {
        let settings = Settings { max_depth: Some(3), ..Settings::default() };
        let put = |switch| QueueChange::Put(settings.clone(), switch);
        let (on, off) = (|now| Switch::On(Pause { since: at(now), ..pause(None) }), |now| Switch::Off(at(now)));
        let set = put(None).apply(Queue::unset("t", "q"));
        assert!(put(None).is_done(&set) && put(Some(off(1))).is_done(&set) && QueueChange::Resume.is_done(&set));
        assert!(!put(Some(on(1))).is_done(&set) && !QueueChange::Put(Settings::default(), None).is_done(&set));
        assert!(!QueueChange::Remove.is_done(&set) && !QueueChange::Pause(pause(None)).is_done(&set));
        let paused = QueueChange::Pause(pause(Some(10))).apply(set.clone());
        assert!(put(None).is_done(&paused) && put(Some(on(9))).is_done(&paused) && !put(Some(off(9))).is_done(&paused));
        // From its end on it counts as no pause.
        assert!(put(Some(off(10))).is_done(&paused) && !put(Some(on(10))).is_done(&paused));
        assert_eq!(put(Some(on(9))).apply(paused.clone()).pause, paused.pause, "it keeps its end");
        assert_eq!(put(Some(on(10))).apply(paused).pause, Some(Pause { since: at(10), ..pause(None) }));
        assert!(!put(None).is_done(&QueueChange::Remove.apply(set)));
    }

    #[test]
    fn settings_of_another_version_are_read() {
        assert_eq!(serde_json::from_str::<Settings>(r#"{"of_later": 1}"#).unwrap(), Settings::default());
        let all = Settings {
            max_concurrency: Some(1),
            max_per_key: Some(2),
            rate_limit: Some(RateLimit { per_second: 0.5, burst: 2 }),
            max_depth: Some(3),
            retry_policy: Some(RetryPolicy::default()),
            timeout_millis: Some(4),
            dispatch_jitter_millis: 5,
            on_dead_letter: OnDeadLetter::Hold,
            callback: Some(Callback {
                url: "https://example.com/".to_owned(),
                headers: [("x".to_owned(), "y".to_owned())].into(),
                body: crate::task::CallbackBody::Envelope,
            }),
        };
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), all);
    }
}
