//! What becomes of an occurrence whose predecessor is still live, by policy.

use serde_json::{Value, json};

use super::{create, every_second, live, occurrences, outcomes, path, read, statuses, tasks, until_outcomes};
use crate::it::world::{Caller, World, time};

/// A server of its own with a schedule of every second, whose first task a worker holds.
async fn held(policy: &str) -> (World, Caller, Value, Value) {
    let world = World::start().await;
    let caller = world.caller();
    let made = create(&caller, &every_second("q", json!({"overlap_policy": policy}))).await;
    let lease = caller.lease_one("q").await;
    (world, caller, made, lease)
}

async fn complete(caller: &Caller, lease: &Value) {
    caller.tell("complete", lease, json!({})).await.expect(200);
}

#[tokio::test]
async fn skip_never_has_two_live_tasks() {
    let (mut world, caller, made, lease) = held("skip").await;
    let all = until_outcomes(&caller, &made, "skipped", 2).await;
    assert_eq!(outcomes(&all)[0], "fired");
    assert!(all[1..].iter().all(|one| one["reason"] == "previous_live" && one["task_id"].is_null()), "{all:#?}");
    // Another process holds to it too.
    world.server.kill();
    world.restart().await;
    let caller = world.caller();
    let skipped = occurrences(&caller, &made).await.len();
    until_outcomes(&caller, &made, "skipped", skipped + 1).await;
    assert_eq!(live(&tasks(&caller, &made).await), 1);
    complete(&caller, &lease).await;
    until_outcomes(&caller, &made, "fired", 2).await;
    let now = read(&caller, &made).await;
    assert!(now["skipped_count"].as_u64() >= Some(3), "{now:#}");
}

#[tokio::test]
async fn buffer_one_keeps_one_back() {
    let (_world, caller, made, lease) = held("buffer_one").await;
    let all = until_outcomes(&caller, &made, "skipped", 2).await;
    assert_eq!(outcomes(&all)[..4], ["fired", "buffered", "skipped", "skipped"]);
    assert_eq!(tasks(&caller, &made).await.len(), 1);
    complete(&caller, &lease).await;
    let second = caller.lease_one("q").await;
    let all = occurrences(&caller, &made).await;
    assert_eq!((&all[1]["outcome"], &all[1]["reason"]), (&json!("fired"), &json!("previous_ended")));
    assert_eq!(all[1]["task_id"], second["task"]["task_id"]);
}

#[tokio::test]
async fn buffer_all_runs_all_of_them_in_order() {
    let (_world, caller, made, lease) = held("buffer_all").await;
    until_outcomes(&caller, &made, "buffered", 3).await;
    caller.api.patch(&path(&made, ""), &json!({"ends_at": crate::it::world::written(jiff::Timestamp::now())})).await;
    caller.api.post(&path(&made, "/pause"), &json!({})).await.expect(200);
    caller.api.patch(&path(&made, ""), &json!({"cron": "0 0 1 1 *"})).await.expect(200);
    caller.api.post(&path(&made, "/resume"), &json!({})).await.expect(200);
    let all = occurrences(&caller, &made).await;
    assert!(outcomes(&all)[1..].iter().all(|one| ["buffered", "skipped"].contains(one)), "{all:#?}");
    let waiting = outcomes(&all).iter().filter(|one| **one == "buffered").count();
    let (mut lease, mut last) = (lease, None);
    for _ in 0..waiting {
        assert_eq!(live(&tasks(&caller, &made).await), 1, "one at a time");
        complete(&caller, &lease).await;
        lease = caller.lease_one("q").await;
        let all = occurrences(&caller, &made).await;
        let one = all.iter().find(|one| one["task_id"] == lease["task"]["task_id"]).expect("its record");
        assert!(last < Some(time(&one["instant"])), "in order");
        last = Some(time(&one["instant"]));
    }
}

#[tokio::test]
async fn cancel_other_waits_until_the_running_one_has_stopped() {
    let (_world, caller, made, lease) = held("cancel_other").await;
    let running = lease["task"]["task_id"].as_str().expect("an id").to_owned();
    let all = until_outcomes(&caller, &made, "buffered", 1).await;
    assert!(all.iter().any(|one| one["outcome"] == "buffered" && one["reason"] == "waits_for_stop"), "{all:#?}");
    let buffered = all.len();
    until_outcomes(&caller, &made, "skipped", 1).await;
    assert_eq!(caller.task(&running).await["status"], "RUNNING", "it has not stopped yet");
    let all = occurrences(&caller, &made).await;
    assert_eq!(outcomes(&all).iter().filter(|one| **one == "fired").count(), 1);
    assert!(all.len() > buffered && all[1]["reason"] == "superseded", "a later one takes its place: {all:#?}");
    caller.tell("heartbeat", &lease, json!({})).await.problem_code(410, "cancelled");
    caller.until(&running, "CANCELLED").await;
    until_outcomes(&caller, &made, "fired", 2).await;
}

#[tokio::test]
async fn terminate_other_ends_the_running_one_at_once() {
    let (_world, caller, made, lease) = held("terminate_other").await;
    until_outcomes(&caller, &made, "fired", 3).await;
    let refused = caller.tell("complete", &lease, json!({})).await;
    assert!([409, 410].contains(&refused.status()), "{refused}");
    let all = tasks(&caller, &made).await;
    assert_eq!(statuses(&all)[..2], ["CANCELLED", "CANCELLED"]);
    assert!(live(&all) <= 1);
}

#[tokio::test]
async fn allow_all_runs_them_side_by_side() {
    let (_world, caller, made, lease) = held("allow_all").await;
    until_outcomes(&caller, &made, "fired", 3).await;
    assert!(live(&tasks(&caller, &made).await) >= 3);
    complete(&caller, &lease).await;
}
