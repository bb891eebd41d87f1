//! An occurrence whose predecessor is still live, for each policy, in one process.

use serde_json::json;

use super::held::Held;
use super::{occurrences, outcomes, path, read, until_outcomes};
use crate::it::world::{Caller, World};

/// Instants that are decided while the first task is held, including its own.
const DECIDED: usize = 4;

/// A server with a schedule of every second, whose first task a worker holds.
async fn held(policy: &str) -> (World, Caller, Held) {
    let world = World::start().await;
    let caller = world.caller();
    let held = Held::start(&caller, policy).await;
    (world, caller, held)
}

#[tokio::test]
async fn skip_never_has_two_live_tasks() {
    let (mut world, caller, held) = held("skip").await;
    let all = held.decided(&caller, 2).await;
    // A restarted process honours the policy too.
    world.server.kill();
    world.restart().await;
    let caller = world.caller();
    held.expect_skipped(&caller, all.len() + 2).await;
    let now = read(&caller, &held.made).await;
    assert!(now["skipped_count"].as_u64() >= Some(3), "{now:#}");
}

#[tokio::test]
async fn buffer_one_keeps_one_instant() {
    let (_world, caller, held) = held("buffer_one").await;
    held.expect_one_kept_back(&caller, DECIDED).await;
}

#[tokio::test]
async fn buffer_all_runs_every_instant_in_order() {
    let (_world, caller, held) = held("buffer_all").await;
    until_outcomes(&caller, &held.made, "buffered", 3).await;
    // Neither a pause nor an edit removes waiting occurrences.
    caller.api.post(&path(&held.made, "/pause"), &json!({})).await.expect(200);
    caller.api.patch(&path(&held.made, ""), &json!({"cron": "0 0 1 1 *"})).await.expect(200);
    caller.api.post(&path(&held.made, "/resume"), &json!({})).await.expect(200);
    let all = occurrences(&caller, &held.made).await;
    assert!(outcomes(&all)[1..].iter().all(|one| ["buffered", "skipped"].contains(one)), "{all:#?}");
    assert!(outcomes(&all).iter().filter(|one| **one == "buffered").count() >= 3, "{all:#?}");
    held.expect_in_order(&caller).await;
}

#[tokio::test]
async fn cancel_other_waits_until_the_run_has_stopped() {
    let (_world, caller, held) = held("cancel_other").await;
    held.expect_stop_asked(&caller, DECIDED).await;
}

#[tokio::test]
async fn terminate_other_ends_the_run_at_once() {
    let (_world, caller, held) = held("terminate_other").await;
    held.expect_ended(&caller, DECIDED).await;
}

#[tokio::test]
async fn allow_all_runs_every_instant() {
    let (_world, caller, held) = held("allow_all").await;
    held.expect_side_by_side(&caller, DECIDED).await;
}
