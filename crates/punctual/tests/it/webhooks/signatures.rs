//! The secrets of a tenant, and the signatures of its webhooks, checked by the reference library of
//! Standard Webhooks.

use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderName};
use punctual_testkit::sink::{Hit, Sink, SinkAnswer};
use serde_json::{Value, json};
use standardwebhooks::Webhook;

use super::hook;
use crate::it::world::{Caller, SOON, World, array, expect_id, quick, shared, time};

/// A change of a tenant's secrets has its effect within this time.
const WITHIN: Duration = Duration::from_secs(5);

const OWN: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// The path of a tenant's secrets.
fn path(tenant: &str) -> String {
    format!("/v1/admin/tenants/{tenant}/webhook-secrets")
}

/// A tenant that no other test has.
fn fresh(caller: &Caller) -> (Caller, String) {
    let tenant = format!("signed-{}", uuid::Uuid::now_v7().simple());
    (caller.of_tenant(&tenant), tenant)
}

async fn create(caller: &Caller, tenant: &str) -> Value {
    caller.api.post(&path(tenant), &json!({})).await.expect(201)
}

async fn list(caller: &Caller, tenant: &str) -> Vec<Value> {
    array(&caller.api.get(&path(tenant)).await.expect(200)["items"])
}

async fn delete(caller: &Caller, tenant: &str, secret: &Value) {
    let id = secret["id"].as_str().expect("it has an id");
    assert_eq!(caller.api.delete(&format!("{}/{id}", path(tenant))).await.status(), 204);
}

/// Whether a receiver with this secret accepts a request.
fn verifies(secret: &Value, hit: &Hit) -> bool {
    let mut headers = HeaderMap::new();
    for (name, value) in &hit.headers {
        headers.append(HeaderName::try_from(name.as_str()).expect("a name"), value.parse().expect("a value"));
    }
    let receiver = Webhook::new(secret["secret"].as_str().expect("it is shown")).expect("a secret");
    receiver.verify(&hit.body, &headers).is_ok()
}

fn signatures(hit: &Hit) -> usize {
    hit.values("webhook-signature").iter().map(|value| value.split(' ').count()).sum()
}

/// Calls the receiver until a call has this many signatures, and returns that call.
async fn until_signed(caller: &Caller, sink: &Sink, wanted: usize) -> Hit {
    let begun = Instant::now();
    loop {
        let asked = begun.elapsed();
        let path = format!("/{}", uuid::Uuid::now_v7().simple());
        caller.submit(hook(sink, &path, json!({"payload": {"n": 1}}))).await;
        let hit = sink.wait_for(&path, 1, SOON).await.remove(0);
        if signatures(&hit) == wanted {
            return hit;
        }
        // A call that was begun when the time was over has to have it.
        assert!(asked < WITHIN, "a call {asked:?} after the change has {} signatures", signatures(&hit));
    }
}

#[tokio::test]
async fn a_rotation_needs_no_pause() {
    let ((caller, tenant), sink) = (fresh(&shared().await), Sink::start());
    let unsigned = until_signed(&caller, &sink, 0).await;
    assert!(unsigned.values("webhook-signature").is_empty());

    let first = create(&caller, &tenant).await;
    let hit = until_signed(&caller, &sink, 1).await;
    assert!(verifies(&first, &hit), "{hit:?}");

    let second = create(&caller, &tenant).await;
    let hit = until_signed(&caller, &sink, 2).await;
    assert!(verifies(&first, &hit) && verifies(&second, &hit), "either verifies: {hit:?}");

    delete(&caller, &tenant, &first).await;
    let hit = until_signed(&caller, &sink, 1).await;
    assert!(!verifies(&first, &hit) && verifies(&second, &hit), "{hit:?}");

    delete(&caller, &tenant, &second).await;
    until_signed(&caller, &sink, 0).await;
}

#[tokio::test]
async fn every_body_and_every_attempt_is_signed() {
    let ((caller, tenant), sink) = (fresh(&shared().await), Sink::start());
    let secret = create(&caller, &tenant).await;
    for (n, fields) in [
        json!({}),
        json!({"payload": ""}),
        json!({"payload": {"price": 1.5, "name": "Zo\u{eb}"}}),
        json!({"payload": [1], "callback_body": "envelope", "metadata": {"k": "v"}}),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{n}");
        caller.submit(hook(&sink, &path, fields)).await;
        let hit = sink.wait_for(&path, 1, SOON).await.remove(0);
        assert!(verifies(&secret, &hit), "{hit:?}");
    }
    sink.script("/again", [SinkAnswer::status(503).header("retry-after", "2"), SinkAnswer::status(200)]);
    caller.submit(hook(&sink, "/again", json!({"retry_policy": quick(1)}))).await;
    let hits = sink.wait_for("/again", 2, SOON).await;
    assert!(hits.iter().all(|hit| verifies(&secret, hit)), "{hits:?}");
    assert_eq!(hits[0].header("webhook-id"), hits[1].header("webhook-id"));
    let seconds = |hit: &Hit| hit.header("webhook-timestamp").parse::<i64>().expect("seconds");
    assert!(seconds(&hits[0]) < seconds(&hits[1]), "each attempt has its own time");
}

#[tokio::test]
async fn a_secret_is_shown_once() {
    let (caller, tenant) = fresh(&shared().await);
    assert!(list(&caller, &tenant).await.is_empty());
    let made = create(&caller, &tenant).await;
    let text = made["secret"].as_str().expect("it is shown").to_owned();
    expect_id(made["id"].as_str().expect("an id"), "whs_");
    time(&made["created_at"]);
    assert!(text.starts_with("whsec_") && text.len() == 6 + 44, "256 bits: {} characters", text.len());
    let listed = caller.api.get(&path(&tenant)).await;
    let digits = made["last_digits"].as_str().expect("digits");
    assert!(digits.len() == 4 && text.trim_end_matches('=').ends_with(digits));
    assert!(!listed.text().contains(&text[6..40]), "the list shows it");
    let [item] = listed.value()["items"].as_array().expect("items").clone().try_into().expect("one");
    assert_eq!(item, json!({"id": made["id"], "created_at": made["created_at"], "last_digits": digits}));
    assert_ne!(create(&caller, &tenant).await["secret"], made["secret"]);
    assert_eq!(list(&caller, &tenant).await[0]["id"], made["id"], "the oldest first");
}

#[tokio::test]
async fn two_secrets_live_and_a_third_is_refused() {
    let (caller, tenant) = fresh(&shared().await);
    let own = json!({ "secret": OWN });
    let first = caller.api.post(&path(&tenant), &own).await.expect(201);
    assert_eq!((&first["secret"], &first["last_digits"]), (&json!(OWN), &json!("LaSw")));
    // The answer was lost: the same call again changes nothing.
    assert_eq!(caller.api.post(&path(&tenant), &own).await.expect(200), first);
    let second = create(&caller, &tenant).await;
    let problem = caller.api.post(&path(&tenant), &json!({})).await.problem_code(409, "too_many_secrets");
    assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("delete")), "{problem}");
    assert_eq!(caller.api.post(&path(&tenant), &own).await.expect(200), first);
    assert_eq!(list(&caller, &tenant).await.len(), 2);
    delete(&caller, &tenant, &first).await;
    let gone = format!("{}/{}", path(&tenant), first["id"].as_str().expect("an id"));
    caller.api.delete(&gone).await.problem_code(404, "not_found");
    let third = create(&caller, &tenant).await;
    let ids: Vec<Value> = list(&caller, &tenant).await.into_iter().map(|item| item["id"].clone()).collect();
    assert_eq!(ids, [second["id"].clone(), third["id"].clone()]);
}

#[tokio::test]
async fn a_request_without_a_body_makes_a_secret() {
    let (caller, tenant) = fresh(&shared().await);
    caller.api.call("POST", &path(&tenant)).send().await.expect(201);
    caller.api.call("POST", &path(&tenant)).body("application/json", "null").send().await.expect(201);
}

#[tokio::test]
async fn a_malformed_secret_is_refused_and_not_repeated() {
    let (caller, tenant) = fresh(&shared().await);
    for secret in [
        json!("canary-MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        json!("whsec_canary"),
        json!(format!("whsec_canary{}", "A".repeat(100))),
        json!(["canary"]),
        json!({"canary": "canary"}),
    ] {
        let answer = caller.api.post(&path(&tenant), &json!({ "secret": secret })).await;
        answer.invalid("/secret");
        assert!(!answer.text().contains("canary"), "{answer}");
    }
    let other = caller.api.post(&path(&tenant), &json!("whsec_canary")).await;
    assert!(other.status() == 422 && !other.text().contains("canary"), "{other}");
    assert!(list(&caller, &tenant).await.is_empty());
}

#[tokio::test]
async fn secrets_belong_to_their_tenant() {
    let caller = shared().await;
    let ((_, one), (_, two)) = (fresh(&caller), fresh(&caller));
    let secret = create(&caller, &one).await;
    let id = secret["id"].as_str().expect("an id");
    caller.api.delete(&format!("{}/{id}", path(&two))).await.problem_code(404, "not_found");
    assert!(list(&caller, &two).await.is_empty() && list(&caller, &one).await.len() == 1);
    for odd in ["1", "whs_1", "%00", &id.to_uppercase(), &id.replace("whs_", "task_")] {
        caller.api.delete(&format!("{}/{odd}", path(&one))).await.problem_code(404, "not_found");
    }
    for odd in ["a%20b", "%00", "%ff", "a%2Fb", &"x".repeat(65)] {
        caller.api.get(&path(odd)).await.problem_code(400, "invalid_tenant");
        caller.api.post(&path(odd), &json!({})).await.problem_code(400, "invalid_tenant");
        caller.api.delete(&format!("{}/{id}", path(odd))).await.problem_code(400, "invalid_tenant");
    }
}

#[tokio::test]
async fn no_secret_is_in_the_log_and_secrets_outlive_the_server() {
    let mut world = World::start_with(|serve| serve.setting("LOG__LEVEL", "debug")).await;
    let ((caller, tenant), sink) = (fresh(&world.caller()), Sink::start());
    let secret = create(&caller, &tenant).await;
    caller.api.post(&path(&tenant), &json!({ "secret": OWN })).await.expect(201);
    until_signed(&caller, &sink, 2).await;
    let log = world.server.log();
    assert!(log.contains("a webhook secret was created"), "{log}");
    for canary in [&secret["secret"].as_str().expect("it is shown")[6..30], &OWN[6..30]] {
        assert!(!log.contains(canary), "the log has a secret");
    }
    world.server.kill();
    world.restart().await;
    let caller = world.caller().of_tenant(&tenant);
    sink.answer("/", SinkAnswer::status(200));
    assert_eq!(signatures(&until_signed(&caller, &sink, 2).await), 2);
}
