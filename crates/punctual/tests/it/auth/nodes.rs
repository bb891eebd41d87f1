//! Credentials on several nodes: a revocation and a nonce hold everywhere.

use std::time::{Duration, Instant};

use punctual_testkit::eventually::eventually;
use punctual_testkit::http::ApiClient;
use serde_json::json;

use super::signed::{Signing, now};
use super::{guarded, init, new_key};
use crate::it::cluster::Cluster;

/// Within this time a revoked key is refused everywhere.
const REVOKED_WITHIN: Duration = Duration::from_secs(5);

/// Two nodes on PostgreSQL with authentication on, and the first admin key.
async fn two_nodes() -> (Cluster, String) {
    let mut cluster = Cluster::start(0).await;
    cluster.serve = guarded(cluster.serve.clone());
    cluster.join().await;
    // A server runs already.
    let key = init(&["--store", &cluster.database]);
    cluster.join().await;
    (cluster, key)
}

fn client(cluster: &Cluster, node: usize) -> ApiClient {
    ApiClient::new(cluster.nodes[node].url())
}

#[tokio::test]
async fn a_revoked_key_is_refused_on_every_node() {
    let (cluster, admin) = two_nodes().await;
    let admin = client(&cluster, 0).key(&admin);
    let (id, key) = new_key(&admin, "default", json!({"role": "viewer"})).await;
    let callers = [client(&cluster, 0).key(&key), client(&cluster, 1).key(&key)];
    for caller in &callers {
        caller.get("/v1/whoami").await.expect(200);
    }
    assert_eq!(admin.delete(&format!("/v1/admin/tenants/default/keys/{id}")).await.status(), 204);
    let revoked = Instant::now();
    for caller in &callers {
        // It is used all the time, so that it stays in memory.
        eventually("it is refused", REVOKED_WITHIN * 2, async || match caller.get("/v1/whoami").await {
            answer if answer.status() == 401 => Ok(()),
            answer => Err(answer.to_string()),
        })
        .await;
    }
    assert!(revoked.elapsed() < REVOKED_WITHIN, "refused after {:?}", revoked.elapsed());
}

#[tokio::test]
async fn a_signed_request_cannot_be_replayed_on_another_node() {
    let (cluster, admin) = two_nodes().await;
    let (key_id, key) = new_key(&client(&cluster, 0).key(&admin), "default", json!({"role": "submitter"})).await;
    let submit = Signing {
        key_id: &key_id,
        key: &key,
        method: "POST",
        path: "/v1/tasks",
        body: r#"{"type": "t"}"#,
        seconds: now(),
        nonce: "nonce-0001",
    };
    submit.send(&client(&cluster, 0)).await.expect(201);
    submit.send(&client(&cluster, 1)).await.problem_code(401, "unauthenticated");
    Signing { nonce: "nonce-0002", ..submit }.send(&client(&cluster, 1)).await.expect(201);
}
