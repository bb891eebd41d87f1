//! Schedules fire at their instants: on time, each once, until their end.

use std::collections::HashSet;

use jiff::Timestamp;
use punctual_testkit::sink::{Sink, SinkAnswer};
use serde_json::{Value, json};

use super::{create, every_second, occurrences, outcomes, path, read, tasks, until_outcomes};
use crate::it::world::{World, expect_prompt, in_seconds, merged, seconds_between, time, written};

/// A schedule of every second whose tasks are pushed to the sink.
fn pushed(name: &str, sink: &Sink, more: Value) -> Value {
    let task = json!({"type": "t", "callback_url": sink.url("/"), "retry_policy": {"max_retries": 0}});
    merged(json!({"name": name, "cron": "* * * * * *", "task": task}), more)
}

#[tokio::test]
async fn every_second_fires_once_on_time() {
    let (world, sink) = (World::start().await, Sink::start());
    let caller = world.caller();
    let made = create(&caller, &pushed("s", &sink, json!({}))).await;
    let mut seen = 0;
    expect_prompt("deliveries of a schedule", async || {
        let hits = sink.wait_for("/", seen + 4, crate::it::world::SOON).await;
        let fresh: Vec<f64> = hits[seen..]
            .iter()
            .map(|hit| {
                let due: Timestamp = hit.header("punctual-execute-at").parse().expect("an instant");
                assert_eq!(due.subsec_nanosecond(), 0, "an instant of the expression");
                let late = seconds_between(due, hit.at);
                assert!(late >= 0.0, "early by {late}");
                late
            })
            .collect();
        seen = hits.len();
        fresh
    })
    .await;
    caller.api.post(&path(&made, "/pause"), &json!({})).await.expect(200);
    let all = occurrences(&caller, &made).await;
    let instants: Vec<Timestamp> = all.iter().map(|one| time(&one["instant"])).collect();
    assert!(instants.windows(2).all(|pair| (seconds_between(pair[0], pair[1]) - 1.0).abs() < 1e-6), "{instants:?}");
    let tasks = tasks(&caller, &made).await;
    let ids: HashSet<&str> = tasks.iter().filter_map(|task| task["task_id"].as_str()).collect();
    let recorded: HashSet<&str> = all.iter().filter_map(|one| one["task_id"].as_str()).collect();
    assert_eq!(ids, recorded, "each task has its record and each record its task");
    assert!(tasks.iter().all(|task| task["schedule_id"] == made["schedule_id"]));
    let now = read(&caller, &made).await;
    assert_eq!(now["run_count"], tasks.len());
    let events = caller.trail(tasks[0]["task_id"].as_str().expect("an id")).await;
    assert_eq!(events[0]["actor"], "schedule");
}

#[tokio::test]
async fn a_schedule_ends_at_max_runs_or_ends_at() {
    let world = World::start().await;
    let caller = world.caller();
    let some = create(&caller, &every_second("some", json!({"max_runs": 2, "overlap_policy": "allow_all"}))).await;
    let until = written(in_seconds(2.5));
    let brief = create(&caller, &every_second("brief", json!({"ends_at": until, "overlap_policy": "allow_all"}))).await;
    until_outcomes(&caller, &some, "fired", 2).await;
    until_outcomes(&caller, &brief, "fired", 2).await;
    let ended = read(&caller, &some).await;
    assert_eq!((&ended["next_run_at"], &ended["run_count"]), (&json!(null), &json!(2)));
    let last = punctual_testkit::eventually::eventually("it has ended", crate::it::world::SOON, async || {
        let now = read(&caller, &brief).await;
        if now["next_run_at"].is_null() { Ok(now) } else { Err(format!("{now:#}")) }
    })
    .await;
    assert!(time(&last["last_run_at"]) <= time(&last["ends_at"]));
    // A greater limit lets it continue.
    let on = caller.api.patch(&path(&some, ""), &json!({"max_runs": 3})).await.expect(200);
    assert!(on["next_run_at"].is_string());
    until_outcomes(&caller, &some, "fired", 3).await;
}

#[tokio::test]
async fn a_paused_schedule_records_skipped_instants() {
    let world = World::start().await;
    let caller = world.caller();
    let made = create(&caller, &every_second("s", json!({"overlap_policy": "allow_all"}))).await;
    // A second schedule shows that time passes.
    let clock = create(&caller, &every_second("clock", json!({"overlap_policy": "allow_all"}))).await;
    until_outcomes(&caller, &made, "fired", 1).await;
    let paused = caller.api.post(&path(&made, "/pause"), &json!({"reason": "maintenance"})).await.expect(200);
    assert_eq!((&paused["paused"], &paused["pause_reason"]), (&json!(true), &json!("maintenance")));
    assert!(paused["next_run_at"].is_null());
    let before = occurrences(&caller, &made).await.len();
    let passed = occurrences(&caller, &clock).await.len();
    until_outcomes(&caller, &clock, "fired", passed + 3).await;
    assert_eq!(occurrences(&caller, &made).await.len(), before);
    let again = caller.api.post(&path(&made, "/pause"), &json!({})).await.expect(200);
    assert_eq!(again, paused, "it is paused already");
    let resumed = caller.api.post(&path(&made, "/resume"), &json!({})).await.expect(200);
    assert_eq!((&resumed["paused"], &resumed["version"]), (&json!(false), &json!(3)));
    let fired = outcomes(&occurrences(&caller, &made).await).iter().filter(|one| **one == "fired").count();
    let all = until_outcomes(&caller, &made, "fired", fired + 1).await;
    let skipped: Vec<&Value> = all.iter().filter(|one| one["outcome"] == "skipped").collect();
    assert!(skipped.len() >= 2 && skipped.iter().all(|one| one["reason"] == "paused"), "{all:#?}");
    let instants: Vec<Timestamp> = all.iter().map(|one| time(&one["instant"])).collect();
    assert!(
        instants.windows(2).all(|pair| (seconds_between(pair[0], pair[1]) - 1.0).abs() < 1e-6),
        "no gap: {instants:?}"
    );
    assert_eq!(caller.api.post(&path(&made, "/resume"), &json!({})).await.expect(200)["version"], 3);
}

#[tokio::test]
async fn pause_on_failure_pauses_the_schedule() {
    let (world, sink) = (World::start().await, Sink::start());
    let caller = world.caller();
    sink.answer("/", SinkAnswer::status(400));
    let made = create(&caller, &pushed("s", &sink, json!({"pause_on_failure": true}))).await;
    let paused = punctual_testkit::eventually::eventually("it is paused", crate::it::world::SOON, async || {
        let now = read(&caller, &made).await;
        if now["paused"] == true { Ok(now) } else { Err(format!("{now:#}")) }
    })
    .await;
    let reason = paused["pause_reason"].as_str().unwrap_or_default();
    assert!(reason.contains("DEAD_LETTERED") && reason.contains("task_"), "{reason}");
    sink.answer("/", SinkAnswer::status(200));
    let fired = paused["run_count"].as_u64().expect("a number");
    caller.api.post(&path(&made, "/resume"), &json!({})).await.expect(200);
    until_outcomes(&caller, &made, "fired", usize::try_from(fired).expect("few") + 2).await;
    assert_eq!(read(&caller, &made).await["paused"], false, "the earlier failure does not pause it again");
}

#[tokio::test]
async fn jitter_spreads_the_tasks_not_the_instants() {
    let world = World::start().await;
    let caller = world.caller();
    let wanted = every_second("s", json!({"jitter_seconds": 30, "overlap_policy": "allow_all"}));
    let made = create(&caller, &wanted).await;
    let all = until_outcomes(&caller, &made, "fired", 4).await;
    let mut delays = HashSet::new();
    for one in all.iter().filter(|one| one["outcome"] == "fired") {
        let task = caller.task(one["task_id"].as_str().expect("a task")).await;
        let delay = seconds_between(time(&one["instant"]), time(&task["execute_at"]));
        assert!((0.0..=30.0).contains(&delay), "{delay}");
        delays.insert(format!("{delay:.3}"));
    }
    assert!(delays.len() > 1, "{delays:?}");
}

#[tokio::test]
async fn an_edited_schedule_fires_at_its_new_instants() {
    let world = World::start().await;
    let caller = world.caller();
    let made = create(&caller, &every_second("s", json!({"overlap_policy": "allow_all"}))).await;
    until_outcomes(&caller, &made, "fired", 1).await;
    let edited = caller.api.patch(&path(&made, ""), &json!({"cron": "0 0 1 1 *", "task": {"type": "other"}})).await;
    let next = edited.expect(200)["next_run_at"].clone();
    let count = occurrences(&caller, &made).await.len();
    caller.api.patch(&path(&made, ""), &json!({"cron": "*/2 * * * * *"})).await.expect(200);
    let all = until_outcomes(&caller, &made, "fired", count + 2).await;
    for one in &all[count..] {
        assert_eq!(time(&one["instant"]).as_second() % 2, 0, "{one:#}");
        assert_eq!(caller.task(one["task_id"].as_str().expect("a task")).await["type"], "other");
    }
    assert!(next.as_str().is_some_and(|next| next.ends_with("-01-01T00:00:00.000Z")), "{next}");
}

#[tokio::test]
async fn an_ordering_key_runs_its_tasks_one_at_a_time() {
    let world = World::start().await;
    let caller = world.caller();
    let task = json!({"type": "t", "queue": "q", "ordering_key": "k"});
    let made = create(&caller, &every_second("s", json!({"overlap_policy": "allow_all", "task": task}))).await;
    until_outcomes(&caller, &made, "fired", 3).await;
    let wanted = json!({"worker_id": "w", "queues": ["q"], "max_tasks": 10, "wait_seconds": 5});
    let mut last = None;
    for _ in 0..3 {
        let leases = caller.lease(wanted.clone()).await;
        assert_eq!(leases.len(), 1, "one at a time");
        let due = time(&leases[0]["task"]["execute_at"]);
        assert!(last < Some(due), "in order");
        last = Some(due);
        caller.report("complete", &leases[0], json!({})).await.expect(200);
    }
}
