//! `If-Match` and `If-None-Match` on queues, and writes that change nothing.

use serde_json::{Value, json};

use super::{get, pause, put, resume};
use crate::it::cluster::Cluster;
use crate::it::world::{Caller, SOON, merged, shared};

async fn put_if(
    caller: &Caller,
    queue: &str,
    header: &str,
    tag: &str,
    wanted: &Value,
) -> punctual_testkit::http::Reply {
    caller.api.call("PUT", &format!("/v1/queues/{queue}")).header(header, tag).json(wanted).send().await
}

#[tokio::test]
async fn a_missing_queue_matches_nothing() {
    let caller = shared().await;
    let wanted = json!({"max_depth": 5});
    for tag in ["*", "\"0\"", "\"1\""] {
        let problem = put_if(&caller, "q", "if-match", tag, &wanted).await.problem_code(412, "version_mismatch");
        assert_eq!(problem["detail"], "there is no such queue; nothing was done", "{tag}");
        let paused = caller.api.call("POST", "/v1/queues/q/pause").header("if-match", tag);
        paused.json(&json!({})).send().await.problem_code(412, "version_mismatch");
    }
    caller.api.get("/v1/queues/q").await.problem_code(404, "not_found");
    put(&caller, "q", wanted.clone()).await;
    assert_eq!(put_if(&caller, "q", "if-match", "*", &json!({"max_depth": 6})).await.expect(200)["version"], 2);
    caller.api.delete("/v1/queues/q").await.expect(200);
    put_if(&caller, "q", "if-match", "*", &wanted).await.problem_code(412, "version_mismatch");
    put_if(&caller, "q", "if-match", "\"3\"", &wanted).await.problem_code(412, "version_mismatch");
    // A queue that is only used exists, at version 0.
    caller.submit(json!({"type": "t", "queue": "used"})).await;
    put_if(&caller, "used", "if-match", "\"1\"", &wanted).await.problem_code(412, "version_mismatch");
    assert_eq!(put_if(&caller, "used", "if-match", "\"0\"", &wanted).await.expect(200)["version"], 1);
}

#[tokio::test]
async fn an_existing_queue_is_not_created_again() {
    let caller = shared().await;
    let (wanted, other) = (json!({"max_depth": 5}), json!({"max_depth": 6}));
    let made = put_if(&caller, "q", "if-none-match", "*", &wanted).await.expect(200);
    put_if(&caller, "q", "if-none-match", "*", &other).await.problem_code(412, "version_mismatch");
    put_if(&caller, "q", "if-none-match", "\"1\"", &other).await.problem_code(412, "version_mismatch");
    let paused = caller.api.call("POST", "/v1/queues/q/pause").header("if-none-match", "*");
    paused.json(&json!({})).send().await.problem_code(412, "version_mismatch");
    assert_eq!(get(&caller, "q").await, made, "nothing was done");
    assert_eq!(put_if(&caller, "q", "if-none-match", "\"7\"", &other).await.expect(200)["version"], 2);
    put_if(&caller, "q", "if-none-match", "7", &other).await.problem_code(400, "invalid_header");
    caller.submit(json!({"type": "t", "queue": "used"})).await;
    put_if(&caller, "used", "if-none-match", "*", &other).await.problem_code(412, "version_mismatch");
    caller.api.delete("/v1/queues/q").await.expect(200);
    assert_eq!(put_if(&caller, "q", "if-none-match", "*", &wanted).await.expect(200)["version"], 4, "it was removed");
}

/// All callers try to create it; one succeeds.
async fn race(callers: Vec<Caller>) {
    let mut calls = tokio::task::JoinSet::new();
    for (number, caller) in callers.iter().cycle().take(12).enumerate() {
        let (caller, wanted) = (caller.apart(), json!({"max_depth": number + 1}));
        calls.spawn(async move {
            let reply = put_if(&caller, "raced", "if-none-match", "*", &wanted).await;
            reply.expect_any(&[200, 412])["max_depth"].as_u64()
        });
    }
    let made: Vec<u64> = calls.join_all().await.into_iter().flatten().collect();
    assert_eq!(made.len(), 1, "{made:?}");
    let queue = get(&callers[0], "raced").await;
    assert_eq!((queue["max_depth"].as_u64(), queue["version"].as_u64()), (Some(made[0]), Some(1)));
}

#[tokio::test]
async fn only_one_of_many_creations_succeeds() {
    race(vec![shared().await]).await;
}

#[tokio::test]
async fn only_one_of_many_creations_on_two_nodes_succeeds() {
    let cluster = Cluster::start(2).await;
    race(vec![cluster.caller(0), cluster.caller(1)]).await;
    changes_nothing(&cluster.caller(0)).await;
}

#[tokio::test]
async fn a_write_that_changes_nothing_keeps_the_version() {
    changes_nothing(&shared().await).await;
}

async fn changes_nothing(caller: &Caller) {
    let all = json!({
        "max_concurrency": 3, "max_per_key": 2, "rate_limit": {"per_second": 2.5, "burst": 4}, "max_depth": 9, "timeout_seconds": 1.5,
        "retry_policy": {"max_retries": 1}, "dispatch_jitter_seconds": 1, "on_dead_letter": "hold",
    });
    let made = put(caller, "same", all.clone()).await;
    assert_eq!(put(caller, "same", all.clone()).await, made, "the same again");
    assert_eq!(put(caller, "same", merged(all.clone(), json!({"paused": false}))).await, made, "it is not paused");
    assert_eq!(resume(caller, "same").await, made, "nor is there a pause to end");
    let tag = |reply: &punctual_testkit::http::Reply| reply.header("etag").map(str::to_owned);
    let again = put_if(caller, "same", "if-match", "\"1\"", &all).await;
    assert_eq!((tag(&again), again.expect(200)), (Some("\"1\"".to_owned()), made));
    let paused = pause(caller, "same", json!({"reason": "why"})).await;
    assert_eq!(put(caller, "same", all.clone()).await, paused, "a pause stays");
    assert_eq!(put(caller, "same", merged(all.clone(), json!({"paused": true}))).await, paused, "it is paused");
    assert_eq!(put(caller, "same", paused.clone()).await, paused, "the queue is written back as read");
    let other = put(caller, "same", merged(all, json!({"max_depth": 10}))).await;
    assert_eq!((&other["version"], &other["pause"]), (&json!(3), &paused["pause"]));
    // Empty settings change nothing in a queue that has none.
    caller.submit(json!({"type": "t", "queue": "only-used"})).await;
    let used = get(caller, "only-used").await;
    assert_eq!(put(caller, "only-used", json!({})).await, used);
    assert_eq!(put(caller, "fresh", json!({})).await["version"], 1, "it is created");
    assert_eq!(put(caller, "fresh", json!({})).await["version"], 1);
}

/// A pause that has ended does not count as a change when the queue is written back.
#[tokio::test]
async fn a_pause_that_has_ended_is_not_shown() {
    let caller = shared().await;
    let until = crate::it::world::written(crate::it::world::in_seconds(2.0));
    pause(&caller, "q", json!({"until": until})).await;
    let over = punctual_testkit::eventually::eventually("the pause is over", SOON, async || {
        let queue = get(&caller, "q").await;
        if queue["paused"] == false { Ok(queue) } else { Err(queue.to_string()) }
    })
    .await;
    assert_eq!(put(&caller, "q", over.clone()).await, over);
    assert_eq!(put(&caller, "q", json!({"paused": true})).await["version"], 2, "it is paused again");
}
