//! Signed requests, made as a client would make them that knows only the contract.

use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use punctual_testkit::http::{ApiClient, Reply};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Guarded, new_key};
use crate::it::world::id_of;

/// What is signed, and under which key.
#[derive(Clone)]
pub struct Signing<'a> {
    pub key_id: &'a str,
    pub key: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub body: &'a str,
    pub seconds: i64,
    pub nonce: &'a str,
}

impl Signing<'_> {
    /// The header.
    pub fn header(&self) -> String {
        let Self { key_id, key, method, path, body, seconds, nonce } = self;
        let secret = key.rsplit('_').next().expect("invariant: a key has parts");
        let text = format!("{method}\n{path}\n{seconds}\n{nonce}\n{}", hex::encode(Sha256::digest(body)));
        let mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("invariant: a key of any length will do");
        let mac = mac.chain_update(text);
        format!("keyid={key_id},ts={seconds},nonce={nonce},sig={}", hex::encode(mac.finalize().into_bytes()))
    }

    /// Sends it, signed as it is.
    pub async fn send(&self, client: &ApiClient) -> Reply {
        self.send_with(client, &self.header()).await
    }

    /// Sends it with this header.
    pub async fn send_with(&self, client: &ApiClient, header: &str) -> Reply {
        let call = client.call(self.method, self.path).header("x-client-signature", header);
        if self.body.is_empty() { call.send().await } else { call.body("application/json", self.body).send().await }
    }
}

/// The time in whole seconds.
pub fn now() -> i64 {
    Timestamp::now().as_second()
}

#[tokio::test]
async fn a_signed_request_needs_no_secret_on_the_wire() {
    let world = Guarded::start().await;
    let (key_id, key) = new_key(&world.admin, "default", json!({"role": "submitter"})).await;
    let client = world.stranger();
    let submit = Signing {
        key_id: &key_id,
        key: &key,
        method: "POST",
        path: "/v1/tasks?replace_final=true",
        body: r#"{"type": "t", "payload": {"n": 1}}"#,
        seconds: now(),
        nonce: "nonce-0001",
    };
    let task = submit.send(&client).await.expect(201);
    assert_eq!(task["payload"], json!({"n": 1}));
    submit.send(&client).await.problem_code(401, "unauthenticated");
    let path = format!("/v1/tasks/{}", id_of(&task));
    let read = Signing { method: "GET", path: &path, body: "", nonce: "nonce-0002", ..submit.clone() };
    read.send(&client).await.expect(200);
    let short = key.split('_').nth(2).unwrap();
    Signing { key_id: short, nonce: "nonce-0003", ..read.clone() }.send(&client).await.expect(200);
    let denied = Signing { path: "/v1/admin/nodes", nonce: "nonce-0004", ..read.clone() };
    denied.send(&client).await.problem_code(403, "forbidden");
    let large = format!(r#"{{"type": "t", "payload": "{}"}}"#, "x".repeat(200_000));
    Signing { path: "/v1/tasks", body: &large, nonce: "nonce-0005", ..submit }.send(&client).await.expect(201);
}

#[tokio::test]
async fn whatever_is_swapped_is_refused() {
    let world = Guarded::start().await;
    let (key_id, key) = new_key(&world.admin, "default", json!({"role": "submitter"})).await;
    let (_, other) = new_key(&world.admin, "default", json!({"role": "submitter"})).await;
    let client = world.stranger();
    let good = Signing {
        key_id: &key_id,
        key: &key,
        method: "POST",
        path: "/v1/tasks?replace_final=true",
        body: r#"{"type": "t"}"#,
        seconds: now(),
        nonce: "nonce-0001",
    };
    let header = good.header();
    for sent in [
        Signing { body: r#"{"type": "u"}"#, ..good.clone() },
        Signing { body: r#"{"type": "t"} "#, ..good.clone() },
        Signing { path: "/v1/tasks", ..good.clone() },
        Signing { path: "/v1/tasks?replace_final=false", ..good.clone() },
        Signing { path: "/v1/tasks/batch?replace_final=true", ..good.clone() },
        Signing { method: "PUT", path: "/v1/queues/q", ..good.clone() },
    ] {
        let answer = sent.send_with(&client, &header).await;
        assert!([401, 403].contains(&answer.status()), "{answer}");
    }
    for signed in [Signing { key: &other, ..good.clone() }, Signing { seconds: now() - 301, ..good.clone() }] {
        signed.send(&client).await.problem_code(401, "unauthenticated");
    }
    let ahead = Signing { seconds: now() + 310, ..good.clone() };
    ahead.send(&client).await.problem_code(401, "unauthenticated");
    // None of that has used up the nonce.
    good.send(&client).await.expect(201);
    assert_eq!(world.admin.get("/v1/tasks").await.expect(200)["items"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn signed_requests_are_off_unless_asked_for() {
    let world = Guarded::start_with(|serve| serve.setting("AUTH__SIGNED_REQUESTS", "false")).await;
    let (key_id, key) = new_key(&world.admin, "default", json!({"role": "viewer"})).await;
    let (method, path, nonce) = ("GET", "/v1/whoami", "nonce-0001");
    let who = Signing { key_id: &key_id, key: &key, method, path, body: "", seconds: now(), nonce };
    who.send(&world.stranger()).await.problem_code(401, "unauthenticated");
}
