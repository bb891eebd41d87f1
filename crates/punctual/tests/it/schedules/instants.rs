//! A task of a schedule names the instant it stands for, whenever it runs.

use punctual_testkit::sink::Sink;
use serde_json::{Value, json};

use super::{create, occurrences, path, tasks, until_outcomes, yearly};
use crate::it::world::{World, merged, shared};

const DAYS: [&str; 2] = ["2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z"];

async fn backfilled(caller: &crate::it::world::Caller, task: Value) -> Value {
    let daily = json!({"name": "s", "cron": "0 0 * * *", "overlap_policy": "allow_all", "task": task});
    let made = create(caller, &daily).await;
    let range = json!({"from": DAYS[0], "to": DAYS[1]});
    assert_eq!(caller.api.post(&path(&made, "/backfill"), &range).await.expect(202)["instants"], 2);
    until_outcomes(caller, &made, "fired", 2).await;
    made
}

fn by_instant(tasks: &[Value]) -> Vec<(&Value, &str)> {
    let mut sorted: Vec<_> =
        tasks.iter().map(|task| (&task["schedule_id"], task["scheduled_for"].as_str().expect("an instant"))).collect();
    sorted.sort_by_key(|(_, instant)| *instant);
    sorted
}

#[tokio::test]
async fn a_worker_knows_the_instant_of_a_backfilled_task() {
    let caller = shared().await;
    let made = backfilled(&caller, json!({"type": "t", "queue": "q"})).await;
    let expected = DAYS.map(|day| (&made["schedule_id"], day));
    let listed = tasks(&caller, &made).await;
    assert_eq!(by_instant(&listed), expected);
    assert!(listed.iter().all(|task| task["execute_at"] != task["scheduled_for"]), "it runs now");
    let leases = caller.lease(json!({"worker_id": "w", "queues": ["q"], "max_tasks": 10, "wait_seconds": 20})).await;
    let leased: Vec<Value> = leases.iter().map(|lease| lease["task"].clone()).collect();
    assert_eq!(by_instant(&leased), expected);
    for lease in &leases {
        caller.report("complete", lease, json!({})).await.expect(200);
        let done = caller.task(lease["task"]["task_id"].as_str().expect("an id")).await;
        assert_eq!(done["scheduled_for"], lease["task"]["scheduled_for"], "in the history too");
    }
    let plain = caller.submit(json!({"type": "t", "queue": "other"})).await;
    assert_eq!((&plain["schedule_id"], &plain["scheduled_for"]), (&json!(null), &json!(null)));
}

#[tokio::test]
async fn a_webhook_has_its_instant_in_its_headers() {
    let (world, sink) = (World::start().await, Sink::start());
    let caller = world.caller();
    let made = backfilled(&caller, json!({"type": "t", "callback_url": sink.url("/")})).await;
    let hits = sink.wait_for("/", 2, crate::it::world::SOON).await;
    let mut instants: Vec<&str> = hits.iter().map(|hit| hit.header("punctual-scheduled-for")).collect();
    instants.sort_unstable();
    assert_eq!(instants, DAYS);
    assert!(hits.iter().all(|hit| made["schedule_id"] == hit.header("punctual-schedule-id")));
    let plain = caller.submit_id(json!({"type": "t", "callback_url": sink.url("/plain")})).await;
    caller.until(&plain, "COMPLETED").await;
    let hit = &sink.hits("/plain")[0];
    assert!(hit.headers.iter().all(|(name, _)| !name.to_lowercase().starts_with("punctual-schedule")), "{hit:?}");
}

#[tokio::test]
async fn a_triggered_run_stands_for_the_instant_of_its_record() {
    let caller = shared().await;
    let made = create(&caller, &yearly("s", json!({}))).await;
    let fired = caller.api.post(&path(&made, "/trigger"), &json!({})).await.expect(201);
    let task = caller.task(fired["task_id"].as_str().expect("a task")).await;
    assert_eq!(task["scheduled_for"], fired["instant"]);
    assert_eq!(occurrences(&caller, &made).await[0]["instant"], task["scheduled_for"]);
    let again = caller.submit(merged(json!({"type": "t"}), json!({"delay_seconds": 600}))).await;
    assert_eq!(again["scheduled_for"], json!(null));
}
