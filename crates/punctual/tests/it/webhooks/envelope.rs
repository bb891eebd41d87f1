//! Webhooks that ask for an envelope instead of the bare payload.

use punctual_testkit::sink::Sink;
use serde_json::{Value, json};

use super::hook;
use crate::it::surface::schema::conforms;
use crate::it::world::{Caller, SOON, id_of, shared};

/// A task that has completed with this result.
async fn completed(caller: &Caller, result: Value) -> String {
    let id = caller.submit_id(json!({"type": "extract", "queue": "extract"})).await;
    let lease = caller.lease_one("extract").await;
    caller.report("complete", &lease, json!({ "result": result })).await.expect(200);
    id
}

#[tokio::test]
async fn a_webhook_gets_the_same_results_as_a_lease() {
    let (caller, sink) = (shared().await, Sink::start());
    let (first, second) = (completed(&caller, json!({"rows": 3})).await, completed(&caller, json!("x")).await);
    let parents = json!([second, first]);
    let pull = json!({"type": "load", "queue": "load", "depends_on": parents});
    caller.submit(pull).await;
    let leased = caller.lease_one("load").await;
    let expected = json!([
        {"task_id": second, "status": "COMPLETED", "result": "x"},
        {"task_id": first, "status": "COMPLETED", "result": {"rows": 3}},
    ]);
    assert_eq!(leased["dependencies"], expected);
    let fields =
        json!({"depends_on": parents, "callback_body": "envelope", "payload": {"b": 1}, "metadata": {"k": "v"}});
    let task = caller.submit(hook(&sink, "/load", fields)).await;
    let hit = sink.wait_for("/load", 1, SOON).await.remove(0);
    let body: Value = serde_json::from_slice(&hit.body).expect("JSON");
    let token: u64 = hit.header("punctual-fencing-token").parse().expect("a number");
    assert_eq!(
        body,
        json!({
            "task_id": id_of(&task), "type": "t", "queue": "default", "attempt": 1, "token": token,
            "execute_at": task["execute_at"], "metadata": {"k": "v"}, "payload": {"b": 1}, "dependencies": expected,
        })
    );
    let document = caller.api.get("/openapi.json").await.expect(200).clone();
    let schema = &document["components"]["schemas"]["Envelope"];
    conforms(&document, schema, &body, "the body").unwrap_or_else(|fault| panic!("{fault}"));
}

#[tokio::test]
async fn tasks_of_a_schedule_may_ask_for_an_envelope() {
    let (caller, sink) = (shared().await, Sink::start());
    let task = json!({"type": "t", "callback_url": sink.url("/tick"), "callback_body": "envelope", "payload": 7});
    let schedule = json!({"name": sink.url("/tick"), "cron": "@yearly", "task": task});
    let schedule = caller.api.post("/v1/schedules", &schedule).await.expect(201).clone();
    let id = schedule["schedule_id"].as_str().expect("it has an id").to_owned();
    caller.api.post(&format!("/v1/schedules/{id}/trigger"), &json!({})).await.expect(201);
    let hit = sink.wait_for("/tick", 1, SOON).await.remove(0);
    let body: Value = serde_json::from_slice(&hit.body).expect("JSON");
    assert_eq!((&body["payload"], &body["dependencies"]), (&json!(7), &json!([])));
}

/// The callback of a queue has its body, too.
#[tokio::test]
async fn a_queue_may_ask_for_envelopes() {
    let (caller, sink) = (shared().await, Sink::start());
    let settings = json!({"callback_url": sink.url("/queue"), "callback_body": "envelope"});
    caller.api.call("PUT", "/v1/queues/enveloped").json(&settings).send().await.expect(200);
    let task = caller.submit(json!({"type": "t", "queue": "enveloped"})).await;
    assert_eq!(task["callback_body"], "envelope");
    let hit = sink.wait_for("/queue", 1, SOON).await.remove(0);
    assert!(hit.body.starts_with(br#"{"task_id":"#));
}
