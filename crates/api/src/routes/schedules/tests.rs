mod by_name;
mod edits;

use punctual_core::time::Timestamp;
use serde_json::{Value, json};

use crate::testing::{World, merged};

/// A schedule of every second. No node leads, so only requests decide its instants.
async fn every_second(world: &World, more: Value) -> String {
    let body = json!({"name": "s", "cron": "* * * * * *", "overlap_policy": "allow_all", "task": {"type": "t"}});
    let made = world.send("POST", "/v1/schedules", Some(merged(body, more))).await.expect(201);
    format!("/v1/schedules/{}", made["schedule_id"].as_str().unwrap())
}

async fn ask(world: &World, method: &str, path: &str, body: Value) -> Value {
    world.send(method, path, Some(body)).await.expect(200)
}

/// The second, the outcome and the reason of every occurrence, the oldest first.
async fn occurrences(world: &World, path: &str) -> Vec<(String, String, String)> {
    let page = world.get(&format!("{path}/occurrences?limit=1000")).await;
    let text = |item: &Value, field: &str| item[field].as_str().unwrap().to_owned();
    let items = page["items"].as_array().unwrap().iter().rev();
    items.map(|item| (text(item, "instant")[14..19].to_owned(), text(item, "outcome"), text(item, "reason"))).collect()
}

fn each(seconds: std::ops::RangeInclusive<u32>, outcome: &str, reason: &str) -> Vec<(String, String, String)> {
    seconds.map(|second| (format!("00:{second:02}"), outcome.to_owned(), reason.to_owned())).collect()
}

#[tokio::test]
async fn an_edit_decides_due_instants_by_the_old_schedule() {
    for edit in [
        json!({"cron": "0 0 1 1 *"}),
        json!({"timezone": "Europe/Berlin"}),
        json!({"starts_at": "2026-05-23T00:00:00Z"}),
        json!({"ends_at": "2026-05-22T18:00:07Z"}),
        json!({"catchup": "none"}),
        json!({"task": {"type": "other"}}),
    ] {
        let world = World::new();
        let path = every_second(&world, json!({"catchup": "all"})).await;
        world.clock.advance_millis(5_500);
        let version = ask(&world, "PATCH", &path, edit.clone()).await["version"].clone();
        assert_eq!(version, 2, "an edit is one change, whatever was due: {edit}");
        let (late, on_time) = (each(1..=4, "fired", "caught_up"), each(5..=5, "fired", "on_time"));
        assert_eq!(occurrences(&world, &path).await, [late, on_time].concat(), "{edit}");
        let tasks = world.get("/v1/tasks?type=t").await;
        assert_eq!(tasks["items"].as_array().unwrap().len(), 5, "{edit}");
    }
}

#[tokio::test]
async fn a_pause_does_not_skip_what_was_due_before() {
    for pause in [("POST", "/pause", json!({})), ("PATCH", "", json!({"paused": true}))] {
        let (world, (method, call, body)) = (World::new(), pause);
        let path = every_second(&world, json!({"catchup": "all"})).await;
        world.clock.advance_millis(3_500);
        ask(&world, method, &format!("{path}{call}"), body).await;
        world.clock.advance_millis(2_000);
        ask(&world, "POST", &format!("{path}/resume"), json!({})).await;
        let before = [each(1..=2, "fired", "caught_up"), each(3..=3, "fired", "on_time")].concat();
        assert_eq!(occurrences(&world, &path).await, [before, each(4..=5, "skipped", "paused")].concat(), "{method}");
    }
}

#[tokio::test]
async fn a_new_timing_in_a_pause_records_past_instants() {
    let world = World::new();
    let path = every_second(&world, json!({"paused": true})).await;
    world.clock.advance_millis(3_500);
    ask(&world, "PATCH", &path, json!({"overlap_policy": "skip"})).await;
    assert_eq!(occurrences(&world, &path).await, [], "its instants are known still");
    let edited = ask(&world, "PATCH", &path, json!({"cron": "*/10 * * * * *"})).await;
    assert_eq!((&edited["paused"], &edited["skipped_count"]), (&json!(true), &json!(3)));
    assert_eq!(occurrences(&world, &path).await, each(1..=3, "skipped", "paused"));
    world.clock.advance_millis(7_000);
    let resumed = ask(&world, "PATCH", &path, json!({"cron": "0 0 * * *", "paused": false})).await;
    assert_eq!((&resumed["paused"], &resumed["skipped_count"]), (&json!(false), &json!(4)));
}

#[tokio::test]
async fn an_edit_that_changes_nothing_decides_nothing() {
    let world = World::new();
    let path = every_second(&world, json!({})).await;
    world.clock.advance_millis(3_500);
    let same = ask(&world, "PATCH", &path, json!({"cron": "* * * * * *", "paused": false})).await;
    assert_eq!((&same["version"], &same["run_count"]), (&json!(1), &json!(0)));
}

#[tokio::test]
async fn an_interval_begins_when_its_schedule_does() {
    let world = World::ticking();
    let body = json!({"interval_seconds": 60, "task": {"type": "t"}});
    let posted = world.send("POST", "/v1/schedules", Some(merged(body.clone(), json!({"name": "a"})))).await;
    let put = world.send("PUT", "/v1/schedules/by-name/b", Some(body)).await;
    for made in [posted.expect(201), put.expect(201)] {
        let millis = |field: &str| Timestamp::parse(made[field].as_str().unwrap()).unwrap().as_millis();
        assert_eq!(millis("next_run_at") - millis("created_at"), 60_000, "{made}");
        let id = made["schedule_id"].as_str().unwrap();
        let path = format!("/v1/schedules/{id}/preview?count=1&from=2020-01-01T00:00:00Z");
        assert_eq!(world.get(&path).await["items"][0]["run_at"], made["next_run_at"], "nothing before it");
    }
}

/// It counts from then, and the instants before the schedule was there are none of its own.
#[tokio::test]
async fn an_interval_may_count_from_the_past() {
    let world = World::new();
    let interval =
        json!({"name": "a", "interval_seconds": 60, "starts_at": "2026-05-21T17:59:20Z", "task": {"type": "t"}});
    let made = world.send("POST", "/v1/schedules", Some(interval)).await.expect(201);
    assert_eq!(made["next_run_at"], "2026-05-22T18:00:20.000Z", "{made}");
    let path = format!("/v1/schedules/{}", made["schedule_id"].as_str().unwrap());
    let page = world.get(&format!("{path}/preview?count=1&from=2026-05-21T18:00:00Z")).await;
    assert_eq!(page["items"][0]["run_at"], made["next_run_at"]);
    let past = json!({"from": "2026-05-22T17:00:00Z", "to": "2026-05-22T17:10:00Z"});
    let backfill = world.send("POST", &format!("{path}/backfill"), Some(past)).await.expect(202);
    assert_eq!(backfill["instants"], 0, "{backfill}");
}

#[tokio::test]
async fn a_preview_begins_where_it_is_asked_to() {
    let world = World::new();
    let minutely = json!({"cron": "* * * * *", "max_runs": 3});
    let shown = async |query: &str| {
        let path = format!("/v1/schedules/preview?{query}");
        let page = world.send("POST", &path, Some(minutely.clone())).await.expect(200);
        let items = page["items"].as_array().unwrap();
        items.iter().map(|item| item["run_at"].as_str().unwrap()[11..16].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(shown("").await, ["18:01", "18:02", "18:03"], "now it is 18:00");
    assert_eq!(shown("from=2026-05-22T17:59:00Z").await, ["17:59", "18:00", "18:01", "18:02", "18:03"]);
    assert_eq!(shown("from=2026-05-22T17:58:00.0000000001Z&count=2").await, ["17:59", "18:00"]);
    assert_eq!(shown("from=2026-05-22T18:02:30Z").await, ["18:03"], "the runs before it are used up");
    assert_eq!(shown("from=2026-05-22T18:03:30Z").await, [""; 0]);
    let refused = world.send("POST", "/v1/schedules/preview?from=soon", Some(minutely.clone())).await;
    assert_eq!(refused.pointers(), ["?from"]);
}

#[tokio::test]
async fn a_backfill_keeps_the_records_of_other_instants() {
    let world = World::new();
    let path = every_second(&world, json!({"paused": true})).await;
    world.clock.advance_millis(20_000_500);
    let resumed = ask(&world, "POST", &format!("{path}/resume"), json!({})).await;
    assert_eq!(resumed["skipped_count"], 20_000, "every one is counted");
    // Those up to 18:16:39 are listed, and one record stands for the rest.
    let covering = async || {
        let page = world.get(&format!("{path}/occurrences?limit=1000")).await;
        let of = |item: &Value| {
            let covers = &item["covers"];
            let time = |text: &Value| text.as_str().unwrap()[11..19].to_owned();
            (
                time(&item["instant"]),
                covers["until"].as_str().map(|_| time(&covers["until"])),
                covers["at_least"].as_u64(),
            )
        };
        let items: Vec<_> = page["items"].as_array().unwrap().iter().map(of).collect();
        items.into_iter().filter(|(_, until, _)| until.is_some()).rev().collect::<Vec<_>>()
    };
    let of = |from: &str, until: &str, count| (from.to_owned(), Some(until.to_owned()), Some(count));
    assert_eq!(covering().await, [of("18:16:40", "23:33:20", 19_001)]);
    let backfill = async |from: &str, to: &str| {
        let body = json!({"from": format!("2026-05-22T{from}Z"), "to": format!("2026-05-22T{to}Z")});
        world.send("POST", &format!("{path}/backfill"), Some(body)).await.expect(202)["instants"].clone()
    };
    assert_eq!(backfill("18:16:40", "18:16:49").await, 10);
    assert_eq!(covering().await, [of("18:16:50", "23:33:20", 18_991)]);
    assert_eq!(backfill("20:00:00", "20:00:59").await, 60);
    assert_eq!(covering().await, [of("18:16:50", "20:00:00", 6_190), of("20:01:00", "23:33:20", 12_741)]);
    let now = world.get(&path).await;
    assert_eq!((&now["skipped_count"], &now["missed_count"]), (&json!(20_000), &json!(0)));
}
