//! Recurring schedules, as their owners, the workers and a webhook's target see them.

mod again;
mod catchup;
mod crowd;
mod failover;
mod firing;
mod handover;
mod held;
mod instants;
mod keys;
mod manual;
mod overlap;
mod surface;
mod validation;

use punctual_testkit::eventually::eventually;
use serde_json::{Value, json};

use crate::it::world::{Caller, SOON, array, expect_id, merged, time};

/// A schedule of every second whose tasks wait for pull workers in the queue of its name.
fn every_second(name: &str, more: Value) -> Value {
    merged(json!({"name": name, "cron": "* * * * * *", "task": {"type": "t", "queue": name}}), more)
}

/// A schedule that does not fire during a test.
fn yearly(name: &str, more: Value) -> Value {
    let next = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(24 * 200);
    let task = json!({"type": "t", "queue": name});
    merged(json!({"name": name, "interval_seconds": 31_536_000, "starts_at": next.to_string(), "task": task}), more)
}

/// Creates a schedule, which must be accepted, and returns it.
async fn create(caller: &Caller, schedule: &Value) -> Value {
    let made = caller.api.post("/v1/schedules", schedule).await.expect(201);
    expect_id(&id(&made), "sched_");
    made
}

fn id(schedule: &Value) -> String {
    schedule["schedule_id"].as_str().unwrap_or_else(|| panic!("no schedule_id in {schedule:#}")).to_owned()
}

fn path(schedule: &Value, verb: &str) -> String {
    format!("/v1/schedules/{}{verb}", id(schedule))
}

async fn read(caller: &Caller, schedule: &Value) -> Value {
    caller.api.get(&path(schedule, "")).await.expect(200)
}

/// The occurrences of a schedule, the oldest first.
async fn occurrences(caller: &Caller, schedule: &Value) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = caller.api.get(&path(schedule, &format!("/occurrences?limit=1000{cursor}"))).await.expect(200);
        all.extend(array(&page["items"]));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    all.reverse();
    all
}

fn outcomes(occurrences: &[Value]) -> Vec<&str> {
    occurrences.iter().map(|one| one["outcome"].as_str().expect("an outcome")).collect()
}

/// Every second from the first to the last has one record.
#[track_caller]
fn expect_every_second(occurrences: &[Value]) {
    let instants: Vec<i64> = occurrences.iter().map(|one| time(&one["instant"]).as_second()).collect();
    let expected: Vec<i64> = (instants[0]..=instants[instants.len() - 1]).collect();
    assert_eq!(instants, expected, "each instant once");
}

/// Waits until this many instants have this outcome; returns all, of any outcome.
async fn until_outcomes(caller: &Caller, schedule: &Value, outcome: &str, count: usize) -> Vec<Value> {
    eventually(&format!("{count} are {outcome}"), SOON, async || {
        let all = occurrences(caller, schedule).await;
        let found = outcomes(&all).iter().filter(|one| **one == outcome).count();
        if found >= count { Ok(all) } else { Err(format!("{all:#?}")) }
    })
    .await
}

/// The tasks of a schedule, the oldest first.
async fn tasks(caller: &Caller, schedule: &Value) -> Vec<Value> {
    let mut tasks = caller.list(&format!("/v1/tasks?limit=1000&schedule_id={}", id(schedule))).await;
    tasks.reverse();
    tasks
}

fn statuses(tasks: &[Value]) -> Vec<&str> {
    tasks.iter().map(|task| task["status"].as_str().expect("a status")).collect()
}

/// How many of the tasks are live.
fn live(tasks: &[Value]) -> usize {
    statuses(tasks).iter().filter(|status| ["BLOCKED", "PENDING", "QUEUED", "RUNNING"].contains(status)).count()
}
