use serde_json::{Value, json};

use crate::testing::{World, merged};

async fn schedule(world: &World, name: &str, more: Value) {
    let body = merged(json!({"name": name, "task": {"type": name, "queue": "q"}}), more);
    world.send("POST", "/v1/schedules", Some(body)).await.expect(201);
}

async fn wait(world: &World, kind: &str, seconds: u64) -> String {
    world.submit(json!({"type": kind, "delay_seconds": seconds})).await
}

/// All items of a listing, in pages of `limit`, as `HH:MM:SS name-or-type`.
async fn listed(world: &World, query: &str, limit: usize) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.get(&format!("/v1/upcoming?limit={limit}{query}{cursor}")).await;
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit);
        assert_eq!(page["schedules_missing"], 0);
        found.extend(items.iter().map(|item| {
            let is_task = item["task_id"].is_string();
            assert_eq!((item["schedule_id"].is_string(), item["name"].is_string()), (!is_task, !is_task), "{item}");
            let name = item[if is_task { "type" } else { "name" }].as_str().unwrap();
            format!("{} {name}", &item["at"].as_str().unwrap()[11..19])
        }));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[tokio::test]
async fn what_will_run_is_listed_by_name() {
    let world = World::new();
    schedule(&world, "hourly", json!({"cron": "0 * * * *", "max_runs": 3})).await;
    schedule(&world, "half", json!({"cron": "30 * * * *"})).await;
    schedule(&world, "paused", json!({"cron": "* * * * *", "paused": true})).await;
    let soon = wait(&world, "soon", 60).await;
    for (kind, seconds) in [("with-hourly", 3_600), ("later", 2 * 3_600 + 1), ("beyond", 6 * 3_600), ("due", 0)] {
        wait(&world, kind, seconds).await;
    }
    let expected = [
        "18:01:00 soon",
        "18:30:00 half",
        "19:00:00 hourly",
        "19:00:00 with-hourly",
        "19:30:00 half",
        "20:00:00 hourly",
        "20:00:01 later",
        "20:30:00 half",
        "21:00:00 hourly",
        "21:30:00 half",
        "22:30:00 half",
        "23:30:00 half",
    ];
    for limit in [1, 2, 5, 1_000] {
        assert_eq!(listed(&world, "&to=2026-05-23T00:00:00Z", limit).await, expected, "in pages of {limit}");
    }
    let some = listed(&world, "&from=2026-05-22T19:00:00Z&to=2026-05-22T20:00:00Z", 50).await;
    assert_eq!(some, expected[2..5]);
    let first = world.get("/v1/upcoming?limit=1").await["items"][0].clone();
    let expected = json!({"at": "2026-05-22T18:01:00.000Z", "schedule_id": null, "task_id": soon, "name": null,
        "type": "soon", "queue": "default"});
    assert_eq!(first, expected);
    let other = world.send_with("GET", "/v1/upcoming", ("punctual-tenant", "other")).await.expect(200);
    assert_eq!(other["items"], json!([]));
}

/// More tasks in one minute than a page has, and a schedule of every second beside them.
#[tokio::test]
async fn a_herd_is_listed_in_pages() {
    let world = World::new();
    schedule(&world, "tick", json!({"interval_seconds": 1, "max_runs": 150})).await;
    for index in 0..40 {
        wait(&world, "herd", 90 + index % 2).await;
    }
    let found = listed(&world, "", 7).await;
    assert_eq!(found.len(), 190);
    assert!(found.is_sorted_by_key(|item| item[..8].to_owned()));
    assert_eq!(found.iter().filter(|item| item.ends_with("herd")).count(), 40);
}

#[tokio::test]
async fn a_window_has_at_most_31_days() {
    let world = World::new();
    schedule(&world, "daily", json!({"cron": "0 3 * * *"})).await;
    assert_eq!(listed(&world, "", 50).await.len(), 31);
    assert_eq!(listed(&world, "&from=2026-07-01T00:00:00Z&to=2026-08-01T00:00:00Z", 50).await.len(), 31);
    assert_eq!(listed(&world, "&from=2020-01-01T00:00:00Z&to=2026-05-24T00:00:00Z", 50).await.len(), 1);
    for (query, pointer) in [
        ("to=2026-06-22T18:00:00.001Z", "?to"),
        ("to=2026-05-22T18:00:00Z", "?to"),
        ("from=2026-06-02T00:00:00Z&to=2026-06-01T00:00:00Z", "?to"),
        ("from=soon", "?from"),
        ("until=x", "?until"),
        ("limit=0", "?limit"),
    ] {
        let refused = world.send("GET", &format!("/v1/upcoming?{query}"), None).await;
        assert_eq!(refused.pointers(), [pointer], "{query}");
    }
    assert_eq!(world.send("GET", "/v1/upcoming?cursor=x", None).await.problem(), "invalid_cursor");
}
