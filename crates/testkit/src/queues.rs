//! The conformance suite of [`punctual_core::queues::Queues`]: each sentence of its contract is
//! a function here or in a file beside it, of the same name.

mod counts;
mod depth;
mod keys;
mod places;
mod rates;
mod settings;

use punctual_core::lane::LaneId;
use punctual_core::queues::{Pause, Queue, QueueChange, Settings};
use punctual_core::store::{Claim, Claimed, LimitKind, LimitedLane};
use punctual_core::task::Task;
use punctual_core::time::Timestamp;

use crate::fixtures::{TaskBuilder, task};
use crate::store::{StoreFixture, WORKER, worker};

pub use counts::*;
pub use depth::*;
pub use keys::*;
pub use places::*;
pub use rates::*;
pub use settings::*;

const TENANT: &str = "acme";
const QUEUE: &str = "mail";

/// Stamps the suite. `$factory` is an expression that returns a `StoreFactory` with a fresh place.
#[macro_export]
macro_rules! queues_conformance {
    ($factory:expr) => {
        $crate::stamp! { queues, $factory;
            put_replaces_the_settings,
            an_unchanged_queue_is_not_written,
            settings_and_pauses_outlive_the_process,
            a_queue_exists_from_its_first_use,
            a_removed_queue_is_shown_while_it_has_tasks,
            a_change_may_need_a_version,
            queues_are_listed_by_name_with_their_live_tasks,
            counts_of_a_queue_are_the_sum_of_its_lanes,
            queues_of_tenants_are_apart,
            changed_queues_are_read_once,
            a_paused_queue_gives_nothing,
            a_pause_ends_by_itself,
            a_pause_holds_for_claims_under_way,
            no_more_run_at_once_than_the_limit,
            a_place_is_free_again_however_its_task_leaves,
            a_lowered_limit_holds_for_later_claims,
            no_more_are_taken_than_there_are_tokens,
            tokens_outlive_the_process,
            insert_refuses_what_is_over_the_depth,
            insert_is_bounded_by_the_depth_under_concurrency,
            insert_replays_a_task_of_a_full_queue,
            insert_refuses_an_unknown_dependency_before_a_full_queue,
            a_queue_with_unreadable_settings_is_paused,
            limit_changes_name_freed_places,
            no_more_of_a_key_run_at_once_than_the_limit,
            a_full_key_holds_up_no_other,
            a_place_of_a_key_is_free_again_however_its_task_leaves,
            a_woken_task_that_leaves_wakes_another,
            a_raised_limit_per_key_lets_more_run,
            a_review_wakes_what_was_forgotten,
            keys_of_queues_are_apart,
            tasks_without_a_key_are_not_limited_by_key,
            an_ordering_key_keeps_its_order_under_a_limit_per_key,
        }
    };
}

/// A task of the queue whose settings the tests change.
fn mail() -> TaskBuilder {
    task().tenant(TENANT).queue(QUEUE)
}

async fn change(fixture: &StoreFixture<'_>, change: QueueChange) -> Queue {
    fixture.database.change_queue(TENANT, QUEUE, change).await.expect("a queue can be changed")
}

async fn put(fixture: &StoreFixture<'_>, settings: Settings) -> Queue {
    change(fixture, QueueChange::Put(settings, None)).await
}

async fn limit(fixture: &StoreFixture<'_>, max_concurrency: u32) {
    put(fixture, Settings { max_concurrency: Some(max_concurrency), ..Settings::default() }).await;
}

fn pause(fixture: &StoreFixture<'_>, until: Option<Timestamp>) -> Pause {
    Pause { since: fixture.now(), by: "client".to_owned(), reason: Some("because".to_owned()), until }
}

/// Claims for [`WORKER`], up to a hundred tasks of each lane.
async fn claim(fixture: &StoreFixture<'_>, lanes: &[LaneId]) -> Claimed {
    let lanes = lanes.iter().map(|lane| (*lane, 100)).collect();
    fixture.claim(Claim { lanes, limit: 1_000, claimant: worker(WORKER) }).await
}

async fn taken(fixture: &StoreFixture<'_>, lane: LaneId) -> Vec<Task> {
    claim(fixture, &[lane]).await.tasks
}

fn held(claimed: &Claimed) -> Vec<(LaneId, LimitKind, Option<Timestamp>)> {
    claimed.limited.iter().map(|LimitedLane { lane, by, until }| (*lane, *by, *until)).collect()
}
