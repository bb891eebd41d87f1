//! The conformance suite of resolving by [`punctual_core::upkeep::Upkeep`]: each sentence of its
//! contract is a function here of the same name. Random histories are compared with a model.

mod children;
mod keys;
mod races;
mod random;
mod revived;

use punctual_core::ids::TaskId;
use punctual_core::lane::LaneId;
use punctual_core::queues::{OnDeadLetter, QueueChange, Settings};
use punctual_core::state::State;
use punctual_core::task::Task;

use crate::fixtures::TENANT;
use crate::store::{StoreFixture, ids};

pub use children::*;
pub use keys::*;
pub use races::*;
pub use random::*;
pub use revived::*;

/// Stamps the suite. `$factory` is an expression that returns a `StoreFactory` with a fresh place.
#[macro_export]
macro_rules! resolver_conformance {
    ($factory:expr) => {
        $crate::stamp! { resolver, $factory;
            a_key_gives_one_turn_at_a_time,
            a_turn_that_has_begun_is_kept,
            a_claim_waits_for_an_earlier_task_of_the_key,
            an_edited_time_moves_the_turn,
            an_edited_key_moves_the_turn,
            a_dead_letter_lets_the_next_go_or_holds_them,
            a_purged_dead_letter_holds_nothing,
            a_queue_that_stops_holding_releases_at_once,
            a_task_waits_for_what_it_depends_on,
            an_unknown_task_cannot_be_depended_on,
            a_replayed_member_stands_for_its_first_task,
            a_failed_dependency_follows_the_policy,
            a_failure_goes_down_a_chain,
            a_dead_letter_may_hold_its_children,
            a_redrive_revives_its_dependents_if_asked_to,
            a_revived_task_waits_for_all_its_parents,
            a_revived_task_forgets_the_parents_it_waited_for,
            a_replaced_task_is_not_revived,
            a_parent_that_ends_meanwhile_wakes_its_child,
            resolvers_share_the_work,
            notes_outlive_the_process,
            resolve_returns_what_may_be_claimed,

            a_turn_passes_on_however_its_task_ends,
            a_blocked_task_has_no_place_in_its_key,
            thousands_of_parents_release_one_child_once,
            thousands_of_children_follow_one_parent,
            the_dependencies_of_a_task_are_shown,
            turns_follow_a_model_in_random_histories,
        }
    };
}

/// Sets `on_dead_letter` of the queue `default`.
async fn set(fixture: &StoreFixture<'_>, on_dead_letter: OnDeadLetter) {
    let settings = Settings { on_dead_letter, ..Settings::default() };
    fixture
        .database
        .change_queue(TENANT, "default", QueueChange::Put(settings, None))
        .await
        .expect("a queue can be set");
}

/// The tasks of a lane that can be claimed now, after everything is resolved.
async fn claimable(fixture: &StoreFixture<'_>, lane: LaneId) -> Vec<Task> {
    fixture.resolve().await;
    fixture.lease(lane, 100).await
}

/// Asserts that exactly these can be claimed. Returns them, running.
async fn take(fixture: &StoreFixture<'_>, lane: LaneId, expected: &[&Task]) -> Vec<Task> {
    let taken = claimable(fixture, lane).await;
    assert_eq!(ids(&taken), expected.iter().map(|task| task.id).collect::<Vec<TaskId>>());
    taken
}

/// The state of a task as it is stored.
async fn state_of(fixture: &StoreFixture<'_>, task: &Task) -> State {
    fixture.get(task).await.state()
}
