//! Triggers and backfills.

use serde_json::{Value, json};

use super::{create, every_second, occurrences, outcomes, path, read, statuses, tasks, until_outcomes, yearly};
use crate::it::world::{World, in_seconds, merged, seconds_between, shared, time, worker_id, written};

async fn trigger(caller: &crate::it::world::Caller, schedule: &Value) -> punctual_testkit::http::Reply {
    caller.api.post(&path(schedule, "/trigger"), &json!({})).await
}

#[tokio::test]
async fn a_trigger_runs_it_now() {
    let caller = shared().await;
    let made = create(&caller, &yearly("s", json!({"paused": true}))).await;
    let fired = trigger(&caller, &made).await.expect(201);
    assert_eq!(
        (&fired["outcome"], &fired["origin"], &fired["reason"]),
        (&json!("fired"), &json!("manual"), &json!("triggered"))
    );
    let task = caller.task(fired["task_id"].as_str().expect("a task")).await;
    assert_eq!((&task["schedule_id"], &task["queue"]), (&made["schedule_id"], &json!("s")));
    assert!(seconds_between(time(&fired["instant"]), jiff::Timestamp::now()) < 20.0);
    let all = occurrences(&caller, &made).await;
    assert_eq!(all, [fired]);
    let now = read(&caller, &made).await;
    assert_eq!((&now["run_count"], &now["version"]), (&json!(1), &json!(1)));
    let lease = caller.lease_one("s").await;
    caller.report("complete", &lease, json!({})).await.expect(200);
}

#[tokio::test]
async fn a_trigger_is_subject_to_the_overlap_policy() {
    let caller = shared().await;
    for (policy, status, outcome, after) in [
        ("skip", 200, "skipped", vec!["PENDING"]),
        ("buffer_one", 202, "buffered", vec!["PENDING"]),
        ("buffer_all", 202, "buffered", vec!["PENDING"]),
        ("terminate_other", 201, "fired", vec!["CANCELLED", "PENDING"]),
        ("allow_all", 201, "fired", vec!["PENDING", "PENDING"]),
    ] {
        let made = create(&caller, &yearly(policy, json!({"overlap_policy": policy}))).await;
        trigger(&caller, &made).await.expect(201);
        let occurrence = trigger(&caller, &made).await.expect(status);
        assert_eq!(occurrence["outcome"], outcome, "{policy}");
        assert_eq!(statuses(&tasks(&caller, &made).await), after, "{policy}");
        assert_eq!(occurrences(&caller, &made).await.len(), 2, "{policy}");
    }
}

#[tokio::test]
async fn a_waiting_trigger_counts_towards_max_runs() {
    let caller = shared().await;
    let made = create(&caller, &yearly("w", json!({"overlap_policy": "buffer_all", "max_runs": 3}))).await;
    for (status, left) in [(201, 2), (202, 1), (202, 0)] {
        trigger(&caller, &made).await.expect(status);
        let preview = caller.api.get(&path(&made, "/preview?count=5")).await.expect(200);
        assert_eq!(preview["items"].as_array().map(Vec::len), Some(left), "{preview}");
    }
    assert_eq!(read(&caller, &made).await["next_run_at"], Value::Null);
}

/// A trigger ignores a pause, also if it has to wait.
#[tokio::test]
async fn a_waiting_trigger_runs_during_a_pause() {
    let caller = shared().await;
    for policy in ["buffer_one", "buffer_all"] {
        let made = create(&caller, &yearly(policy, json!({"overlap_policy": policy, "paused": true}))).await;
        trigger(&caller, &made).await.expect(201);
        trigger(&caller, &made).await.expect(202);
        let first = caller.lease_one(policy).await;
        caller.report("complete", &first, json!({})).await.expect(200);
        let second = caller.lease_one(policy).await;
        caller.report("complete", &second, json!({})).await.expect(200);
        assert_eq!(read(&caller, &made).await["run_count"], 2, "{policy}");
    }
    let made = create(&caller, &yearly("c", json!({"overlap_policy": "cancel_other", "paused": true}))).await;
    trigger(&caller, &made).await.expect(201);
    trigger(&caller, &made).await.expect(202);
    until_outcomes(&caller, &made, "fired", 2).await;
    assert_eq!(statuses(&tasks(&caller, &made).await), ["CANCELLED", "PENDING"]);
    // The same if the pause begins while the triggered run waits.
    let later = create(&caller, &yearly("l", json!({"overlap_policy": "buffer_all"}))).await;
    trigger(&caller, &later).await.expect(201);
    trigger(&caller, &later).await.expect(202);
    caller.api.post(&path(&later, "/pause"), &json!({})).await.expect(200);
    let first = caller.lease_one("l").await;
    caller.report("complete", &first, json!({})).await.expect(200);
    until_outcomes(&caller, &later, "fired", 2).await;
}

#[tokio::test]
async fn a_backfill_runs_one_at_a_time_in_order() {
    let world = World::start().await;
    let caller = world.caller();
    let made = create(&caller, &json!({"name": "s", "cron": "0 0 * * *", "task": {"type": "t", "queue": "q"}})).await;
    let wanted = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-04T23:00:00Z"});
    let answer = caller.api.post(&path(&made, "/backfill"), &wanted).await.expect(202);
    assert_eq!(answer["instants"], 4);
    assert_eq!(
        caller.api.post(&path(&made, "/backfill"), &wanted).await.expect(202)["instants"],
        0,
        "they wait already"
    );
    for day in 1..=4 {
        let leases =
            caller.lease(json!({"worker_id": worker_id(), "queues": ["q"], "max_tasks": 10, "wait_seconds": 20})).await;
        assert_eq!(leases.len(), 1, "one at a time");
        let all = occurrences(&caller, &made).await;
        let fired = outcomes(&all).iter().filter(|one| **one == "fired").count();
        assert_eq!(fired, day, "in order: {all:#?}");
        assert_eq!(all[day - 1]["instant"], format!("2026-01-0{day}T00:00:00.000Z"));
        assert_eq!(all[day - 1]["task_id"], leases[0]["task"]["task_id"]);
        assert_eq!(all[day - 1]["origin"], "backfill");
        caller.report("complete", &leases[0], json!({})).await.expect(200);
    }
    assert_eq!(caller.api.post(&path(&made, "/backfill"), &wanted).await.expect(202)["instants"], 0, "they have run");
    let now = read(&caller, &made).await;
    assert_eq!(
        (&now["run_count"], &now["last_run_at"]),
        (&json!(0), &json!(null)),
        "a backfill does not count as a run"
    );
    let ran = trigger(&caller, &made).await.expect(201);
    assert_eq!(read(&caller, &made).await["last_run_at"], ran["instant"], "a trigger counts as a run");
}

#[tokio::test]
async fn a_backfill_can_be_withdrawn() {
    let caller = shared().await;
    let minutely =
        json!({"name": "s", "cron": "* * * * *", "starts_at": "2100-01-01T00:00:00Z", "task": {"type": "t"}});
    let made = create(&caller, &minutely).await;
    caller.api.patch(&path(&made, ""), &json!({"starts_at": null})).await.expect(200);
    caller.api.post(&path(&made, "/pause"), &json!({})).await.expect(200);
    let range = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T23:59:00Z"});
    let backfill = path(&made, "/backfill");
    assert_eq!(caller.api.post(&backfill, &range).await.expect(202)["instants"], 2_880);
    let old = caller.api.call("DELETE", &backfill).header("if-match", "\"1\"").send().await;
    old.problem_code(412, "version_mismatch");
    caller.stranger().api.delete(&backfill).await.problem_code(404, "not_found");
    assert_eq!(caller.api.delete(&backfill).await.expect(200)["instants"], 2_880);
    assert_eq!(caller.api.delete(&backfill).await.expect(200)["instants"], 0, "nothing is left to withdraw");
    let all = occurrences(&caller, &made).await;
    let withdrawn = all.iter().filter(|one| one["outcome"] == "skipped" && one["reason"] == "withdrawn").count();
    assert_eq!(withdrawn, 2_880);
    assert_eq!(read(&caller, &made).await["skipped_count"], 0, "a backfill does not count as skipped");
    let again = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:01:00Z"});
    assert_eq!(caller.api.post(&backfill, &again).await.expect(202)["instants"], 2);
}

#[tokio::test]
async fn max_runs_does_not_limit_a_backfill() {
    let world = World::start().await;
    let caller = world.caller();
    let wanted = json!({"max_runs": 2, "overlap_policy": "allow_all"});
    let made = create(&caller, &every_second("s", wanted)).await;
    until_outcomes(&caller, &made, "fired", 2).await;
    let ended = read(&caller, &made).await;
    assert_eq!((&ended["run_count"], &ended["next_run_at"]), (&json!(2), &json!(null)));
    let range = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:00:02Z"});
    assert_eq!(caller.api.post(&path(&made, "/backfill"), &range).await.expect(202)["instants"], 3);
    until_outcomes(&caller, &made, "fired", 5).await;
    assert_eq!(read(&caller, &made).await["run_count"], 2, "the backfill is not counted");

    // A backfill uses up nothing of `max_runs`.
    let later = create(&caller, &yearly("t", json!({"max_runs": 1, "overlap_policy": "allow_all"}))).await;
    let daily = json!({"cron": "0 0 * * *", "starts_at": null});
    caller.api.patch(&path(&later, ""), &daily).await.expect(200);
    let range = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-04T00:00:00Z"});
    assert_eq!(caller.api.post(&path(&later, "/backfill"), &range).await.expect(202)["instants"], 4);
    until_outcomes(&caller, &later, "fired", 4).await;
    let now = read(&caller, &later).await;
    assert_eq!((&now["run_count"], now["next_run_at"].is_string()), (&json!(0), true), "{now:#}");
}

#[tokio::test]
async fn a_backfill_does_not_repeat_instants_that_ran() {
    let world = World::start().await;
    let caller = world.caller();
    let made = create(&caller, &every_second("s", json!({}))).await;
    // No worker takes the first task, so the following ones are skipped.
    let all = until_outcomes(&caller, &made, "skipped", 2).await;
    caller.api.post(&path(&made, "/pause"), &json!({})).await.expect(200);
    caller.api.patch(&path(&made, ""), &json!({"overlap_policy": "allow_all"})).await.expect(200);
    let range = json!({"from": all[0]["instant"], "to": all[2]["instant"]});
    assert_eq!(caller.api.post(&path(&made, "/backfill"), &range).await.expect(202)["instants"], 2);
    assert_eq!(outcomes(&occurrences(&caller, &made).await)[..3], ["fired", "buffered", "buffered"], "it is paused");
    // So that nothing else fires when it resumes.
    let far = json!({"cron": "0 0 1 1 *"});
    caller.api.patch(&path(&made, ""), &far).await.expect(200);
    caller.api.post(&path(&made, "/resume"), &json!({})).await.expect(200);
    let after = until_outcomes(&caller, &made, "fired", 3).await;
    assert_eq!(after[0], all[0], "the record of the first run is unchanged");
    assert!(after[1..3].iter().all(|one| one["reason"] == "backfilled" && one["task_id"].is_string()), "{after:#?}");
}

#[tokio::test]
async fn a_large_backfill_is_done_in_parts() {
    let world = World::start().await;
    let caller = world.caller();
    let minutely = json!({"cron": "* * * * *", "interval_seconds": null, "starts_at": null});
    let made = create(&caller, &yearly("s", merged(minutely, json!({"overlap_policy": "allow_all"})))).await;
    let range = json!({"from": written(in_seconds(-150_000.0)), "to": written(in_seconds(-60.0))});
    let asked =
        caller.api.post(&path(&made, "/backfill"), &range).await.expect(202)["instants"].as_u64().expect("a number");
    assert!((2_490..=2_500).contains(&asked), "{asked}");
    let all = usize::try_from(asked).expect("few");
    until_outcomes(&caller, &made, "fired", all).await;
}
