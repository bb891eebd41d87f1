//! The forecast: tasks and schedules together, on both stores.

use jiff::{SignedDuration, Timestamp};
use punctual_testkit::eventually::eventually;
use punctual_testkit::postgres::connect;
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::world::{Caller, SOON, World, array, id_of, in_seconds, shared, time, written};

/// The middle of a minute, this many minutes from now: no test takes long enough to come near its
/// ends.
fn minutes_ahead(minutes: i64) -> Timestamp {
    begin_of(Timestamp::now()) + SignedDuration::from_secs(minutes * 60 + 30)
}

/// The first instant of the minute that contains an instant.
fn begin_of(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second().div_euclid(60) * 60).expect("invariant: a minute of this century")
}

fn due(at: Timestamp) -> Value {
    json!({"type": "t", "queue": "q", "execute_at": written(at)})
}

/// A minute of a forecast.
fn minute(at: Timestamp, tasks: u64, schedules: u64) -> Value {
    json!({"at": written(begin_of(at)), "tasks": tasks, "schedules": schedules})
}

async fn forecast(caller: &Caller, query: &str) -> Value {
    caller.api.get(&format!("/v1/forecast{query}")).await.expect(200)
}

/// A schedule that fires once a day, first at that time.
async fn daily(caller: &Caller, name: &str, at: Timestamp) -> Value {
    let schedule = json!({"name": name, "interval_seconds": 86_400, "starts_at": written(at), "task": {"type": "t", "queue": "s"}});
    caller.api.post("/v1/schedules", &schedule).await.expect(201)
}

#[tokio::test]
async fn tasks_and_schedules_are_counted_together() {
    let caller = shared().await;
    let (soon, later, far) = (minutes_ahead(90), minutes_ahead(180), minutes_ahead(30 * 60));
    let tasks = caller.submit_all(vec![due(soon), due(soon), due(soon), due(later), due(far)]).await;
    caller.submit(json!({"type": "t", "queue": "q"})).await;
    daily(&caller, "a", soon).await;
    let paused = daily(&caller, "b", later).await;
    let shown = forecast(&caller, "").await;
    let (from, to) = (time(&shown["from"]), time(&shown["to"]));
    assert!(from > Timestamp::now() - SignedDuration::from_mins(2) && from == begin_of(from), "{from}");
    assert_eq!(to.duration_since(from), SignedDuration::from_hours(24));
    assert_eq!(shown["minutes"], json!([minute(soon, 3, 1), minute(later, 1, 1)]));
    assert_eq!(shown["herds"], shown["minutes"]);
    assert_eq!((&shown["tasks"], &shown["schedules"], &shown["complete"]), (&json!(4), &json!(2), &json!(true)));

    let path = |task: &Value, tail: &str| format!("/v1/tasks/{}{tail}", id_of(task));
    caller.api.delete(&path(&tasks[0], "")).await.expect(200);
    caller.api.patch(&path(&tasks[1], ""), &json!({"execute_at": written(later)})).await.expect(200);
    caller.api.call("POST", &path(&tasks[2], "/run")).send().await.expect(200);
    let id = paused["schedule_id"].as_str().expect("a schedule has an id");
    caller.api.post(&format!("/v1/schedules/{id}/pause"), &json!({})).await.expect(200);
    let shown = forecast(&caller, "?top=1").await;
    assert_eq!(shown["minutes"], json!([minute(soon, 0, 1), minute(later, 2, 0)]));
    assert_eq!(shown["herds"], json!([minute(later, 2, 0)]));
    caller.api.call("POST", &format!("/v1/schedules/{id}/resume")).send().await.expect(200);
    assert_eq!(forecast(&caller, "").await["minutes"], json!([minute(soon, 0, 1), minute(later, 2, 1)]));
    assert_eq!(forecast(&caller, "?hours=48").await["tasks"], 3);
    assert_eq!(forecast(&caller.stranger(), "").await["minutes"], json!([]));
    caller.api.get("/v1/forecast?hours=49").await.problem_code(422, "invalid_request");
}

/// The forecast puts an instant with jitter where the cron loop does; one that has fired is a task.
#[tokio::test]
async fn an_instant_is_counted_once_where_its_jitter_puts_it() {
    let caller = shared().await;
    let starts_at = written(in_seconds(4.0));
    let schedule = json!({
        "name": "jittered", "interval_seconds": 864_000, "starts_at": starts_at, "jitter_seconds": 7_200,
        "task": {"type": "t", "queue": "s"},
    });
    let schedule = caller.api.post("/v1/schedules", &schedule).await.expect(201);
    let before = forecast(&caller, "?hours=4").await;
    let id = schedule["schedule_id"].as_str().expect("a schedule has an id");
    let task = eventually("it has fired", SOON, async || {
        let tasks = caller.list(&format!("/v1/tasks?schedule_id={id}")).await;
        tasks.into_iter().next().ok_or_else(|| "no task yet".to_owned())
    })
    .await;
    let (due_at, after) = (time(&task["execute_at"]), forecast(&caller, "?hours=4").await);
    // Unless it falls into the current minute.
    let expected = |shown: &Value, tasks: u64, schedules: u64| {
        if due_at < time(&shown["from"]) { json!([]) } else { json!([minute(due_at, tasks, schedules)]) }
    };
    let fired = array(&before["minutes"]).iter().any(|minute| minute["tasks"] == 1);
    assert_eq!(before["minutes"], expected(&before, u64::from(fired), u64::from(!fired)));
    assert_eq!(after["minutes"], expected(&after, 1, 0));
}

/// Of at most three runs one is live and two wait for it, so none is left for later instants.
async fn counts_no_run_twice(caller: &Caller) {
    let schedule = json!({
        "name": "thrice", "interval_seconds": 3_600, "starts_at": written(minutes_ahead(90)), "max_runs": 3,
        "overlap_policy": "buffer_all", "task": {"type": "t", "queue": "s"},
    });
    let schedule = caller.api.post("/v1/schedules", &schedule).await.expect(201);
    let id = schedule["schedule_id"].as_str().expect("a schedule has an id");
    assert_eq!(forecast(caller, "").await["schedules"], 3);
    for (status, left) in [(201, 2), (202, 1), (202, 0)] {
        caller.api.call("POST", &format!("/v1/schedules/{id}/trigger")).send().await.expect(status);
        assert_eq!(forecast(caller, "").await["schedules"], left);
    }
}

#[tokio::test]
async fn waiting_occurrences_count_towards_max_runs() {
    counts_no_run_twice(&shared().await).await;
}

#[tokio::test]
async fn waiting_occurrences_count_towards_max_runs_on_postgres() {
    let cluster = Cluster::start(1).await;
    counts_no_run_twice(&cluster.caller(0)).await;
}

#[tokio::test]
async fn a_forecast_survives_a_restart() {
    let mut world = World::start().await;
    let at = minutes_ahead(90);
    let tasks = world.caller().submit_all(vec![due(at); 5]).await;
    daily(&world.caller(), "a", at).await;
    world.server.kill();
    world.restart().await;
    let caller = world.caller();
    assert_eq!(forecast(&caller, "").await["minutes"], json!([minute(at, 5, 1)]));
    caller.api.delete(&format!("/v1/tasks/{}", id_of(&tasks[0]))).await.expect(200);
    assert_eq!(forecast(&caller, "").await["minutes"], json!([minute(at, 4, 1)]));
}

#[tokio::test]
async fn every_node_forecasts_the_tasks_of_all_nodes() {
    let cluster = Cluster::start(2).await;
    let (one, two, at) = (cluster.caller(0), cluster.caller(1), minutes_ahead(90));
    let first = one.submit_all(vec![due(at); 3]).await;
    let second = two.submit_all(vec![due(at); 2]).await;
    daily(&two, "a", at).await;
    for caller in [&one, &two] {
        assert_eq!(forecast(caller, "").await["minutes"], json!([minute(at, 5, 1)]));
    }
    two.api.delete(&format!("/v1/tasks/{}", id_of(&first[0]))).await.expect(200);
    one.api.delete(&format!("/v1/tasks/{}", id_of(&second[0]))).await.expect(200);
    let client = connect(&cluster.database).await;
    let enqueue = format!("SELECT punctual.enqueue('t', execute_at => '{at}', tenant => 'default')");
    client.batch_execute(&enqueue).await.expect("it is enqueued");
    eventually("the enqueued task is counted", SOON, async || {
        let shown = forecast(&one, "").await;
        if shown["minutes"] == json!([minute(at, 4, 1)]) { Ok(()) } else { Err(format!("{shown:#}")) }
    })
    .await;
}
