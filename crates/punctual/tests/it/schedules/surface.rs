//! The routes of schedules: every call, its responses and its headers.

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};

use super::{create, id, path, read, yearly};
use crate::it::world::{Caller, SOON, array, in_seconds, merged, shared, time, written};

async fn patched(caller: &Caller, schedule: &Value, patch: Value) -> Value {
    caller.api.patch(&path(schedule, ""), &patch).await.expect(200)
}

#[tokio::test]
async fn a_schedule_is_shown_with_every_default() {
    let caller = shared().await;
    let reply = caller.api.post("/v1/schedules", &yearly("nightly", json!({}))).await;
    let made = reply.expect(201);
    assert_eq!(reply.header("etag"), Some("\"1\""));
    assert_eq!(reply.header("location"), Some(path(&made, "").as_str()));
    for (field, value) in [
        ("name", json!("nightly")),
        ("cron", json!(null)),
        ("interval_seconds", json!(31_536_000)),
        ("timezone", json!("UTC")),
        ("task", json!({"type": "t", "queue": "nightly"})),
        ("overlap_policy", json!("skip")),
        ("catchup", json!("last")),
        ("catchup_window_seconds", json!(3600)),
        ("dst_gap", json!("shift")),
        ("dst_fold", json!("first")),
        ("day_overflow", json!("skip")),
        ("jitter_seconds", json!(0)),
        ("ends_at", json!(null)),
        ("max_runs", json!(null)),
        ("pause_on_failure", json!(false)),
        ("paused", json!(false)),
        ("last_run_at", json!(null)),
        ("run_count", json!(0)),
        ("missed_count", json!(0)),
        ("skipped_count", json!(0)),
        ("version", json!(1)),
    ] {
        assert_eq!(made.get(field), Some(&value), "{field}: {made:#}");
    }
    assert_eq!(made["next_run_at"], made["starts_at"], "an interval begins at starts_at");
    time(&made["created_at"]);
    assert_eq!(read(&caller, &made).await, made);
    let given = json!({
        "cron": "*/5 8-17 * * MON-FRI", "timezone": "europe/berlin", "overlap_policy": "terminate_other",
        "catchup": "all", "catchup_window_seconds": 90.5, "dst_gap": "skip", "dst_fold": "both", "jitter_seconds": 2.5,
        "day_overflow": "last",
        "starts_at": written(in_seconds(-5.0)), "ends_at": "2099-01-01T00:00:00.000Z", "max_runs": 7,
        "pause_on_failure": true, "paused": true,
        "task": {"type": "a", "payload": {"n": [1.50, null]}, "priority": "high", "metadata": {"k": "v"}},
    });
    let full = create(&caller, &merged(json!({"name": "full/1"}), given.clone())).await;
    for (field, value) in given.as_object().expect("an object") {
        let expected = if field == "timezone" { &json!("Europe/Berlin") } else { value };
        assert_eq!(full.get(field), Some(expected), "{field}: {full:#}");
    }
    assert!(full["next_run_at"].is_null() && full["paused_at"].is_string(), "it is paused: {full:#}");
}

#[tokio::test]
async fn a_name_is_unique() {
    let caller = shared().await;
    let made = create(&caller, &yearly("one", json!({}))).await;
    caller.api.post("/v1/schedules", &yearly("one", json!({}))).await.problem_code(409, "name_taken");
    create(&caller.stranger(), &yearly("one", json!({}))).await;
    let other = create(&caller, &yearly("two", json!({}))).await;
    caller.api.patch(&path(&other, ""), &json!({"name": "one"})).await.problem_code(409, "name_taken");
    assert_eq!(read(&caller, &other).await["name"], "two");
    caller.api.delete(&path(&made, "")).await.expect(200);
    assert_eq!(patched(&caller, &other, json!({"name": "one"})).await["name"], "one");
}

#[tokio::test]
async fn other_tenants_do_not_see_a_schedule() {
    let caller = shared().await;
    let (made, stranger) = (create(&caller, &yearly("mine", json!({}))).await, caller.stranger());
    let nothing = json!({});
    stranger.api.get(&path(&made, "")).await.problem_code(404, "not_found");
    stranger.api.patch(&path(&made, ""), &nothing).await.problem_code(404, "not_found");
    for verb in ["/pause", "/resume", "/trigger"] {
        stranger.api.post(&path(&made, verb), &nothing).await.problem_code(404, "not_found");
    }
    let range = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"});
    stranger.api.post(&path(&made, "/backfill"), &range).await.problem_code(404, "not_found");
    for verb in ["/preview", "/occurrences"] {
        stranger.api.get(&path(&made, verb)).await.problem_code(404, "not_found");
    }
    stranger.api.delete(&path(&made, "")).await.problem_code(404, "not_found");
    assert_eq!(stranger.list("/v1/schedules").await.len(), 0);
    caller.api.get("/v1/schedules/sched_1").await.problem_code(404, "not_found");
    caller.api.get(&format!("/v1/schedules/{}", id(&made).to_uppercase())).await.problem_code(404, "not_found");
    assert_eq!(read(&caller, &made).await, made);
}

#[tokio::test]
async fn schedules_are_listed_by_name_page_by_page() {
    let caller = shared().await;
    for name in ["c", "a", "e", "b", "d"] {
        create(&caller, &yearly(name, json!({}))).await;
    }
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = caller.api.get(&format!("/v1/schedules?limit=2{cursor}")).await.expect(200);
        names.extend(array(&page["items"]).iter().map(|one| one["name"].as_str().expect("a name").to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    caller.api.get("/v1/schedules?cursor=x").await.problem_code(400, "invalid_cursor");
    caller.api.get("/v1/schedules?limit=0").await.invalid("?limit");
    caller.api.get("/v1/schedules?name=a").await.invalid("?name");
}

#[tokio::test]
async fn a_patch_changes_only_what_it_names() {
    let caller = shared().await;
    let made = create(&caller, &yearly("s", json!({"max_runs": 5, "timezone": "Europe/Berlin"}))).await;
    assert_eq!(patched(&caller, &made, json!({})).await, made, "an empty patch changes nothing");
    assert_eq!(patched(&caller, &made, json!({"timezone": "Europe/Berlin", "max_runs": 5})).await, made);
    let edited = patched(&caller, &made, json!({"catchup": "none", "max_runs": null, "task": {"type": "other"}})).await;
    let task = json!({"type": "other", "queue": "s"});
    let expected = json!({"catchup": "none", "max_runs": null, "task": task, "version": 2});
    assert_eq!(edited, merged(merged(made.clone(), expected), json!({"updated_at": edited["updated_at"]})));
    let cron = patched(&caller, &made, json!({"cron": "0 0 1 1 *", "starts_at": null})).await;
    assert_eq!((&cron["cron"], &cron["interval_seconds"]), (&json!("0 0 1 1 *"), &json!(null)));
    assert_ne!(cron["next_run_at"], made["next_run_at"], "its instants have changed");
    let back = patched(&caller, &made, json!({"interval_seconds": 3600})).await;
    assert_eq!((&back["cron"], &back["interval_seconds"]), (&json!(null), &json!(3600)));
    for field in ["name", "cron", "interval_seconds", "timezone", "task", "overlap_policy", "catchup", "paused"] {
        caller.api.patch(&path(&made, ""), &json!({ field: null })).await.invalid(&format!("/{field}"));
    }
    let ended = caller.api.patch(&path(&made, ""), &json!({"ends_at": "2020-01-01T00:00:00Z"})).await;
    ended.invalid("/ends_at");
    assert_eq!(read(&caller, &made).await, back, "a refused patch changes nothing");
}

#[tokio::test]
async fn changes_honour_if_match() {
    let caller = shared().await;
    let made = create(&caller, &yearly("s", json!({}))).await;
    let call = |method: &str, verb: &str, tag: &str, body: Option<Value>| {
        let call = caller.api.call(method, &path(&made, verb)).header("if-match", tag);
        if let Some(body) = body { call.json(&body) } else { call }
    };
    let patch = Some(json!({"max_runs": 3}));
    call("PATCH", "", "\"2\"", patch.clone()).send().await.problem_code(412, "version_mismatch");
    let edited = call("PATCH", "", "\"1\"", patch.clone()).send().await;
    assert_eq!(edited.header("etag"), Some("\"2\""));
    call("PATCH", "", "\"1\"", patch).send().await.problem_code(412, "version_mismatch");
    call("POST", "/pause", "\"1\"", None).send().await.problem_code(412, "version_mismatch");
    call("POST", "/pause", "\"2\"", None).send().await.expect(200);
    call("POST", "/resume", "\"2\"", None).send().await.problem_code(412, "version_mismatch");
    call("POST", "/resume", "*", None).send().await.expect(200);
    call("DELETE", "", "\"3\"", None).send().await.problem_code(412, "version_mismatch");
    call("DELETE", "", "x", None).send().await.problem_code(400, "invalid_header");
    assert_eq!(call("DELETE", "", "\"4\"", None).send().await.expect(200)["version"], 4);
    call("DELETE", "", "*", None).send().await.problem_code(404, "not_found");
}

#[tokio::test]
async fn writing_a_schedule_by_name_is_idempotent() {
    let caller = shared().await;
    let put = async |name: &str, body: &Value| {
        caller.api.call("PUT", &format!("/v1/schedules/by-name/{name}")).json(body).send().await
    };
    let mut wanted = yearly("sync", json!({"catchup": "all"}));
    let made = put("sync", &wanted).await.expect(201);
    assert_eq!(put("sync", &wanted).await.expect(200), made, "the same again changes nothing");
    wanted.as_object_mut().expect("an object").remove("name");
    assert_eq!(put("sync", &wanted).await.expect(200), made, "the path names it");
    let paused = caller.api.post(&path(&made, "/pause"), &json!({"reason": "by hand"})).await.expect(200);
    assert_eq!(put("sync", &wanted).await.expect(200), paused, "a write without `paused` keeps the pause");
    let replaced = put("sync", &merged(wanted.clone(), json!({"catchup": "none", "max_runs": 9}))).await.expect(200);
    assert_eq!(
        (&replaced["catchup"], &replaced["max_runs"], &replaced["paused"]),
        (&json!("none"), &json!(9), &json!(true))
    );
    assert_eq!((&replaced["schedule_id"], &replaced["version"]), (&made["schedule_id"], &json!(3)));
    let defaults = put("sync", &merged(wanted.clone(), json!({"catchup": null, "paused": false}))).await.expect(200);
    assert_eq!((&defaults["catchup"], &defaults["max_runs"]), (&json!("last"), &json!(null)), "absent is default");
    assert_eq!(defaults["paused"], false);
    put("other", &merged(wanted.clone(), json!({"name": "sync"}))).await.invalid("/name");
    put("no%20name", &wanted).await.problem_code(422, "invalid_request");
    assert_eq!(put("with%2Fslash", &wanted).await.expect(201)["name"], "with/slash");
    let demanding = caller.api.call("PUT", "/v1/schedules/by-name/new").header("if-match", "\"1\"").json(&wanted);
    demanding.send().await.problem_code(412, "version_mismatch");

    let mut racing = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (api, wanted) = (caller.api.apart(), wanted.clone());
        racing.spawn(async move {
            api.call("PUT", "/v1/schedules/by-name/raced").json(&wanted).send().await.expect_any(&[200, 201])
        });
    }
    let ids: std::collections::BTreeSet<String> = racing.join_all().await.iter().map(id).collect();
    assert_eq!(ids.len(), 1, "there is one schedule of this name");
}

#[tokio::test]
async fn a_preview_stores_nothing() {
    let caller = shared().await;
    let new_york = json!({"cron": "30 2 * * *", "timezone": "America/New_York", "starts_at": "2027-03-13T00:00:00Z"});
    let preview = async |query: &str, body: &Value| {
        caller.api.post(&format!("/v1/schedules/preview{query}"), body).await.expect(200)
    };
    let shown = preview("?count=3", &new_york).await;
    let expected = json!([
        {"run_at": "2027-03-13T07:30:00.000Z", "local": "2027-03-13T02:30:00-05:00[America/New_York]"},
        {"run_at": "2027-03-14T07:00:00.000Z", "local": "2027-03-14T03:00:00-04:00[America/New_York]"},
        {"run_at": "2027-03-15T06:30:00.000Z", "local": "2027-03-15T02:30:00-04:00[America/New_York]"},
    ]);
    assert_eq!(shown, json!({"items": expected, "next_cursor": null}), "the gap is shifted over");
    let skipped = preview("?count=2", &merged(new_york.clone(), json!({"dst_gap": "skip"}))).await;
    assert_eq!(skipped["items"][1]["run_at"], "2027-03-15T06:30:00.000Z");
    assert_eq!(array(&preview("", &new_york).await["items"]).len(), 10);
    assert_eq!(
        array(&preview("?count=1000", &merged(new_york.clone(), json!({"max_runs": 4}))).await["items"]).len(),
        4
    );
    for count in ["0", "1001", "x"] {
        caller.api.post(&format!("/v1/schedules/preview?count={count}"), &new_york).await.invalid("?count");
    }
    assert_eq!(caller.list("/v1/schedules").await.len(), 0);
    let made = create(&caller, &merged(json!({"name": "s", "task": {"type": "t"}}), new_york)).await;
    let of_it = caller.api.get(&path(&made, "/preview?count=3")).await.expect(200);
    assert_eq!(of_it["items"], expected);
    assert_eq!(made["next_run_at"], expected[0]["run_at"]);
}

#[tokio::test]
async fn a_removed_schedule_leaves_its_tasks() {
    let caller = shared().await;
    let made = create(&caller, &yearly("s", json!({}))).await;
    let fired = caller.api.post(&path(&made, "/trigger"), &json!({})).await.expect(201);
    let removed = caller.api.delete(&path(&made, "")).await.expect(200);
    assert_eq!((&removed["schedule_id"], &removed["run_count"]), (&made["schedule_id"], &json!(1)));
    caller.api.get(&path(&made, "")).await.problem_code(404, "not_found");
    caller.api.get(&path(&made, "/occurrences")).await.problem_code(404, "not_found");
    let task = fired["task_id"].as_str().expect("a task");
    assert_eq!(caller.task(task).await["status"], "PENDING");
    create(&caller, &yearly("s", json!({}))).await;
}

#[tokio::test]
async fn the_release_of_the_time_zones_is_shown() {
    let metrics = shared().await.api.get("/metrics").await.text().to_owned();
    let shown =
        metrics.lines().find_map(|line| line.strip_prefix("punctual_build_info{")?.split("tz_database=\"").nth(1));
    let release = shown.and_then(|rest| rest.split('"').next()).unwrap_or_default();
    let year: Option<u32> = release.get(..4).and_then(|year| year.parse().ok());
    assert!(year.is_some_and(|year| year >= 2025) && release.len() == 5, "{release:?} in {metrics}");
}

#[tokio::test]
async fn decisions_are_counted() {
    let caller = shared().await;
    let made = create(&caller, &yearly("s", json!({}))).await;
    caller.api.post(&path(&made, "/trigger"), &json!({})).await.expect(201);
    eventually("it is counted", SOON, async || {
        let metrics = caller.api.get("/metrics").await.text().to_owned();
        let counted = metrics.lines().any(|line| line.starts_with("punctual_occurrences_total{outcome=\"fired\"}"));
        if counted { Ok(()) } else { Err(metrics) }
    })
    .await;
}
