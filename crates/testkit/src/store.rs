//! The conformance suite of [`punctual_core::store::Store`].
//!
//! Each sentence of the port's contract is a function of the same name. Special cases of a sentence
//! have names of their own, and there is [`random_histories_match_a_model`].
//! [`store_conformance!`](crate::store_conformance) makes a test of each. Nothing here knows how a
//! store is made.

mod apply;
mod batches;
mod cancellation;
mod claim;
mod claim_bound;
mod claim_expiry;
mod claim_races;
mod close;
mod concurrency;
mod counts;
mod durability;
mod edits;
mod extend;
mod fences;
mod fixture;
mod get;
mod heads;
mod history;
mod insert;
mod keys;
mod lane_bound;
mod list;
mod list_moving;
mod model;
mod overdue;
mod random;
mod start;
mod tokens;
mod trails;

use std::sync::Arc;

use async_trait::async_trait;
use punctual_core::clock::ManualClock;
use punctual_core::database::Database;
use punctual_core::ids::{NodeId, TaskId};

pub use apply::*;
pub use batches::*;
pub use cancellation::*;
pub use claim::*;
pub use claim_bound::*;
pub use claim_expiry::*;
pub use claim_races::*;
pub use close::*;
pub use concurrency::*;
pub use counts::*;
pub use durability::*;
pub use edits::*;
pub use extend::*;
pub use fences::*;
pub use fixture::*;
pub use get::*;
pub use heads::*;
pub use history::*;
pub use insert::*;
pub use keys::*;
pub use lane_bound::*;
pub use list::*;
pub use list_moving::*;
pub use overdue::*;
pub use random::*;
pub use start::*;
pub use tokens::*;
pub use trails::*;

/// The maximum number of lanes of a tenant in a test. A factory opens its stores with it.
pub const TENANT_LANES: u64 = 2_000;

/// A place for the data of a store, empty at first. Every test makes its own.
#[async_trait]
pub trait StoreFactory: Send + Sync {
    /// Opens a store over the data of this place, as the process `node`, with `clock` as the
    /// store's clock. The previous store has been closed.
    async fn open(&self, clock: Arc<ManualClock>, node: NodeId) -> Arc<dyn Database>;

    /// Makes the database refuse every new task, or accept them again. So a write with several
    /// parts fails at the task, after the others.
    async fn refuse_tasks(&self, refused: bool);

    /// Damages a row behind the store's back.
    async fn damage(&self, damage: RowDamage<'_>);
}

/// A row that a test damages behind the store's back.
#[derive(Clone, Copy, Debug)]
pub enum RowDamage<'a> {
    /// The settings of a queue of a tenant become unreadable.
    QueueSettings(&'a str, &'a str),
    /// The lane of a task is gone.
    TaskLane(TaskId),
}

impl RowDamage<'_> {
    /// The SQL statement; `literal` formats an id for the database.
    pub fn statement(&self, literal: impl Fn(TaskId) -> String) -> String {
        match self {
            RowDamage::QueueSettings(tenant, queue) => format!(
                "UPDATE queues SET settings = '{{\"max_concurrency\": -4}}' WHERE tenant = '{tenant}' AND name = '{queue}'"
            ),
            RowDamage::TaskLane(id) => format!("UPDATE tasks SET lane = -1 WHERE id = {}", literal(*id)),
        }
    }
}

/// Stamps the suite: a test of each sentence. `$factory` is an expression that returns a
/// `StoreFactory` with a fresh place.
#[macro_export]
macro_rules! store_conformance {
    ($factory:expr) => {
        $crate::stamp! { store, $factory;
            insert_is_durable_before_it_returns,
            insert_gives_the_first_task_again,
            insert_refuses_a_key_with_another_body,
            insert_knows_the_digests_of_earlier_builds,
            insert_handles_a_key_twice_in_one_batch,
            insert_replaces_a_final_task_if_asked_to,
            insert_all_stores_all_or_nothing,
            insert_bounds_the_lanes_of_a_tenant,
            claim_takes_what_is_due_in_order,
            claim_takes_nothing_early,
            claim_for_a_worker_takes_what_is_nearly_due_if_asked_to,
            claim_for_the_webhook_worker_starts_the_run,
            claim_is_bounded_in_bytes,
            claim_gives_each_task_to_one,
            claim_fails_what_has_expired,
            claim_fails_a_retry_past_the_expiry,
            claim_returns_when_a_lane_is_due_next,
            claim_is_fenced_by_the_terms_of_its_partitions,
            claim_takes_nothing_due_before_its_bound,
            claim_shortens_a_long_trail,
            claim_counts_the_attempt,
            start_begins_what_is_queued_at_that_version,
            start_fails_what_has_expired,
            apply_is_conditional_on_state_version_and_tenant,
            apply_moves_final_tasks_to_the_history_and_back,
            apply_purges_a_dead_letter_in_the_history,
            apply_keeps_what_a_change_keeps_of_the_trail,
            apply_answers_each_change_of_a_batch,
            apply_as_leader_is_fenced_by_the_term,
            apply_spares_a_hold_that_was_extended_since,
            extend_needs_the_token,
            extend_never_revives_a_hold_that_ran_out,
            extend_never_passes_the_deadline,
            extend_can_detach_a_run_from_its_node,
            get_is_bound_to_the_tenant,
            get_quarantines_a_row_without_its_lane,
            live_names_the_tasks_that_have_not_finished,
            results_end_before_what_has_no_room,
            list_pages_without_gap_or_repeat,
            list_finds_few_tasks_among_many,
            list_ends_a_page_that_is_large,
            heads_pages_every_lane_due_before,
            overdue_finds_lost_holds_and_expired_tasks,
            counts_by_lane_and_state,
            live_counts_are_the_sum_of_all_lanes,

            insert_answers_what_was_submitted,
            insert_takes_ten_thousand_in_order,
            insert_keeps_every_byte,
            insert_creates_once_under_concurrency,
            keys_are_compared_exactly,
            every_write_is_durable,
            claim_keeps_its_limits_over_many_lanes,
            claim_answers_claims_one_after_the_other,
            claim_gives_whole_tasks,
            claim_of_an_unknown_lane_gives_nothing,
            claim_gets_past_many_expired_tasks,
            claim_races_with_cancel_and_edit,
            start_gives_the_whole_task,
            start_is_won_by_one,
            tokens_only_grow,
            versions_beyond_32_bits_are_kept,
            apply_is_won_by_one,
            apply_writes_every_field_of_the_change,
            apply_writes_every_edit,
            apply_moves_an_edited_task_to_its_new_lane,
            apply_leaves_the_hold_of_a_run_asked_to_stop,
            apply_returns_where_a_task_waits,
            apply_walks_a_life_in_one_batch,
            apply_takes_ten_thousand_in_order,
            redrive_starts_over,
            extend_keeps_progress_and_checkpoint_for_the_next_attempt,
            extend_changes_no_version,
            get_answers_in_order,
            list_is_bound_to_the_tenant,
            list_filters_by_each_field,
            list_filters_by_awkward_labels,
            list_is_the_same_for_every_page_size,
            list_misses_nothing_while_tasks_move,
            heads_follow_every_change,
            overdue_is_drained_page_by_page,
            overdue_names_each_task_once,
            counts_follow_every_change,
            empty_calls_answer_nothing,
            check_answers_while_open,
            close_refuses_further_calls,
            a_dropped_call_happened_or_not,
            many_at_once_leave_every_task_whole,
            random_histories_match_a_model,
        }
    };
}
