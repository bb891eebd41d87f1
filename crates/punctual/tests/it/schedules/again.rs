//! Repeated calls, and schedules that are written back as read.

use serde_json::{Value, json};

use super::{create, every_second, occurrences, path, read, until_outcomes, yearly};
use crate::it::world::{World, in_seconds, merged, shared, written};

#[tokio::test]
async fn a_pause_gets_the_reason_that_was_given_last() {
    let caller = shared().await;
    let made = create(&caller, &yearly("s", json!({}))).await;
    let pause = async |body: Value| caller.api.post(&path(&made, "/pause"), &body).await.expect(200);
    let first = pause(json!({"reason": "maintenance"})).await;
    assert_eq!(pause(json!({})).await, first, "a pause without a reason changes nothing");
    assert_eq!(pause(json!({"reason": "maintenance"})).await, first, "nor does one with the same reason");
    let second = pause(json!({"reason": "an incident"})).await;
    let expected = json!({"pause_reason": "an incident", "version": 3, "updated_at": second["updated_at"]});
    assert_eq!(second, merged(first, expected), "paused since the first");
    let read_back = read(&caller, &made).await;
    assert_eq!(read_back, second);
}

#[tokio::test]
async fn an_edit_that_pauses_or_resumes_is_one_version() {
    let caller = shared().await;
    let made = create(&caller, &yearly("s", json!({}))).await;
    let other = create(&caller, &yearly("other", json!({}))).await;
    let patch = async |body: Value| caller.api.patch(&path(&made, ""), &body).await;
    let paused = patch(json!({"paused": true, "max_runs": 3})).await.expect(200);
    assert_eq!((&paused["paused"], &paused["max_runs"], &paused["version"]), (&json!(true), &json!(3), &json!(2)));
    patch(json!({"paused": false, "name": "other"})).await.problem_code(409, "name_taken");
    assert_eq!(read(&caller, &made).await, paused, "a refused edit changes nothing");
    let resumed = patch(json!({"paused": false, "max_runs": 4, "name": "t"})).await.expect(200);
    assert_eq!(
        (&resumed["paused"], &resumed["max_runs"], &resumed["name"], &resumed["version"]),
        (&json!(false), &json!(4), &json!("t"), &json!(3))
    );
    assert!(resumed["next_run_at"].is_string());
    assert_eq!(patch(json!({"paused": true})).await.expect(200)["version"], 4);
    assert_eq!(patch(json!({"paused": true})).await.expect(200)["version"], 4);
    assert_eq!(patch(json!({"paused": false})).await.expect(200)["version"], 5);
    let put = caller.api.call("PUT", "/v1/schedules/by-name/other");
    let put = put.json(&merged(yearly("other", json!({})), json!({"paused": true, "catchup": "none"}))).send().await;
    assert_eq!((&put.expect(200)["version"], &other["version"]), (&json!(2), &json!(1)));
}

#[tokio::test]
async fn an_edit_that_resumes_records_skipped_instants() {
    let world = World::start().await;
    let caller = world.caller();
    let made = create(&caller, &every_second("s", json!({"paused": true}))).await;
    // A second schedule shows that time passes.
    let clock = create(&caller, &every_second("clock", json!({"overlap_policy": "allow_all"}))).await;
    until_outcomes(&caller, &clock, "fired", 3).await;
    let edited = caller.api.patch(&path(&made, ""), &json!({"paused": false, "catchup": "all"})).await.expect(200);
    assert_eq!((&edited["version"], &edited["catchup"]), (&json!(2), &json!("all")));
    let all = occurrences(&caller, &made).await;
    let passed: Vec<&Value> = all.iter().filter(|one| one["reason"] == "paused").collect();
    assert!(passed.len() >= 2, "{all:#?}");
    assert!(edited["skipped_count"].as_u64() >= Some(2), "{edited:#}");
}

#[tokio::test]
async fn a_schedule_can_be_written_back_as_read() {
    let caller = shared().await;
    for (name, more) in [
        ("plain", json!({})),
        ("cron", json!({"cron": "0 3 * * *", "interval_seconds": null, "timezone": "Europe/Berlin", "paused": true})),
        (
            "full",
            json!({"max_runs": 9, "jitter_seconds": 1.5, "ends_at": written(in_seconds(1e9)), "dst_fold": "both"}),
        ),
    ] {
        let made = create(&caller, &yearly(name, more)).await;
        let by_name = format!("/v1/schedules/by-name/{name}");
        let put = async |body: &Value| caller.api.call("PUT", &by_name).json(body).send().await;
        assert_eq!(put(&made).await.expect(200), made, "the same changes nothing");
        let paused = !made["paused"].as_bool().expect("a word");
        let switched = put(&merged(made.clone(), json!({"paused": paused}))).await.expect(200);
        assert_eq!((&switched["paused"], &switched["version"]), (&json!(paused), &json!(2)));
        put(&merged(made.clone(), json!({"next_run": null}))).await.invalid("/next_run");
        let copy = merged(made.clone(), json!({"name": format!("{name}-copy")}));
        assert_ne!(create(&caller, &copy).await["schedule_id"], made["schedule_id"]);
        caller.api.patch(&path(&made, ""), &json!({"version": 1})).await.invalid("/version");
        let other = json!({"cron": null, "interval_seconds": 7_200});
        assert_eq!(caller.api.patch(&path(&made, ""), &other).await.expect(200)["interval_seconds"], 7_200);
        let back = json!({"cron": "0 4 * * *", "interval_seconds": null});
        assert_eq!(caller.api.patch(&path(&made, ""), &back).await.expect(200)["cron"], "0 4 * * *");
        caller.api.patch(&path(&made, ""), &json!({"cron": null})).await.invalid("/cron");
    }
}
