//! Tokens of an issuer that the test plays.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::get;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use punctual_testkit::http::ApiClient;
use punctual_testkit::process::Serve;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{Guarded, path};
use crate::it::config::{punctual, text};
use crate::it::world::merged;

const ISSUER: &str = "https://issuer.example";

/// An issuer that publishes its key on loopback.
struct Issuer {
    key: Ed25519KeyPair,
    url: String,
    asked: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

impl Issuer {
    async fn start() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key can be made");
        let key = Ed25519KeyPair::from_pkcs8(key.as_ref()).expect("it is a key");
        let public = json!({"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": encode(key.public_key())});
        let (document, asked) = (json!({"keys": [public]}).to_string(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&asked);
        let routes = Router::new().route(
            "/keys",
            get(async move || {
                counted.fetch_add(1, Ordering::Relaxed);
                document
            }),
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a port");
        let url = format!("http://{}/keys", listener.local_addr().expect("it has an address"));
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await.expect("it serves") });
        Self { key, url, asked, serving }
    }

    fn token(&self, claims: &Value) -> String {
        let signed = signed_part("EdDSA", claims);
        format!("{signed}.{}", encode(self.key.sign(signed.as_bytes())))
    }
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn signed_part(algorithm: &str, claims: &Value) -> String {
    let header = json!({"alg": algorithm, "kid": "k1", "typ": "JWT"});
    format!("{}.{}", encode(header.to_string()), encode(claims.to_string()))
}

fn shared_token(secret: &[u8], claims: &Value) -> String {
    let signed = signed_part("HS256", claims);
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length is a key");
    mac.update(signed.as_bytes());
    format!("{signed}.{}", encode(mac.finalize().into_bytes()))
}

fn claims(more: Value) -> Value {
    let now = jiff::Timestamp::now().as_second();
    let good = json!({"iss": ISSUER, "aud": "punctual", "sub": "ci-runner", "exp": now + 300, "tenant": "acme", "role": "submitter"});
    merged(good, more)
}

fn accepting(serve: Serve, url: &str) -> Serve {
    serve
        .setting("JWT__ISSUER", ISSUER)
        .setting("JWT__JWKS_URL", url)
        .setting("JWT__ROLES", "root=admin,platform=operator")
        .setting("JWT__QUEUES_CLAIM", "queues")
}

#[tokio::test]
async fn the_bearer_of_a_token_is_who_it_says() {
    let issuer = Issuer::start().await;
    let world =
        Guarded::start_with(|serve| accepting(serve, &issuer.url).setting("JWT__ALLOW_NETWORKS", "127.0.0.0/8")).await;
    let with = |more: Value| world.stranger().key(&issuer.token(&claims(merged(json!({"queues": ["mail*"]}), more))));
    let own = with(json!({}));
    let shown = own.get("/v1/whoami").await.expect(200);
    assert_eq!(
        [&shown["principal"], &shown["tenant"], &shown["role"], &shown["key_id"], &shown["queues"]],
        [&json!("ci-runner"), &json!("acme"), &json!("submitter"), &Value::Null, &json!(["mail*"])]
    );
    let task = own.post("/v1/tasks", &json!({"type": "t", "queue": "mail", "delay_seconds": 600})).await.expect(201);
    assert_eq!(task["tenant"], "acme");
    own.post("/v1/tasks", &json!({"type": "t", "queue": "fax"})).await.problem_code(403, "forbidden");
    own.post("/v1/queues/mail/pause", &json!({})).await.problem_code(403, "forbidden");

    // The settings translate roles; of several the one with the most rights counts.
    for (role, is) in
        [(json!("viewer"), "viewer"), (json!(["viewer", "platform", "unknown"]), "operator"), (json!("root"), "admin")]
    {
        assert_eq!(with(json!({ "role": role })).get("/v1/whoami").await.expect(200)["role"], is, "{role}");
    }
    for wrong in [
        json!({"role": "admin"}),
        json!({"role": "boss"}),
        json!({"role": null}),
        json!({"tenant": null}),
        json!({"tenant": "no name"}),
        json!({"tenant": ["acme", "other"]}),
        json!({"queues": []}),
        json!({"iss": "https://other.example"}),
        json!({"aud": "another"}),
        json!({"exp": 1_000_000_000}),
        json!({"exp": "2100000000"}),
        json!({"nbf": 4_000_000_000_u64}),
    ] {
        with(wrong.clone()).get("/v1/whoami").await.problem_code(401, "unauthenticated");
    }
    let forger = Issuer::start().await;
    let forged = world.stranger().key(&forger.token(&claims(json!({}))));
    forged.get("/v1/whoami").await.problem_code(401, "unauthenticated");
    assert_eq!(issuer.asked.load(Ordering::Relaxed), 1, "its keys are fetched once");
    assert_eq!(forger.asked.load(Ordering::Relaxed), 0);

    // Its keys are known for an hour.
    issuer.serving.abort();
    let other = with(json!({"sub": "another"}));
    assert_eq!(other.get("/v1/whoami").await.expect(200)["principal"], "another");
    let log = world.server.log();
    for token in [issuer.token(&claims(json!({}))), forger.token(&claims(json!({})))] {
        let signature = token.rsplit_once('.').expect("a token has dots").1;
        assert!(!log.contains(signature), "a token is in the log");
    }
}

#[tokio::test]
async fn an_issuer_where_nothing_may_be_called_is_not_called() {
    let issuer = Issuer::start().await;
    let url = issuer.url.replace("http://", "https://");
    let world = Guarded::start_with(|serve| accepting(serve, &url)).await;
    let caller = world.stranger().key(&issuer.token(&claims(json!({"queues": ["*"]}))));
    let refused = caller.get("/v1/whoami").await;
    refused.problem(503);
    assert!(refused.header("retry-after").is_some(), "{refused}");
    assert_eq!(issuer.asked.load(Ordering::Relaxed), 0);
    world.admin.get("/v1/whoami").await.expect(200);
}

#[tokio::test]
async fn a_shared_secret_verifies_tokens() {
    let secret = "0123456789abcdef0123456789abcdef";
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("secret");
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    let set = |serve: Serve| {
        serve
            .setting("JWT__ISSUER", ISSUER)
            .setting("JWT__SECRET_FILE", path(&file))
            .setting("JWT__ALGORITHMS", "HS256")
    };
    let world = Guarded::start_with(set).await;
    let with = |token: String| ApiClient::new(world.server.url()).key(&token);
    let shown = with(shared_token(secret.as_bytes(), &claims(json!({})))).get("/v1/whoami").await.expect(200);
    assert_eq!([&shown["tenant"], &shown["role"]], [&json!("acme"), &json!("submitter")]);
    for wrong in ["", "another secret of thirty-two bytes", "0123456789abcdef0123456789abcdef\n"] {
        let refused = with(shared_token(wrong.as_bytes(), &claims(json!({})))).get("/v1/whoami").await;
        refused.problem_code(401, "unauthenticated");
    }
    let unsigned = format!("{}.", signed_part("none", &claims(json!({}))));
    with(unsigned).get("/v1/whoami").await.problem_code(401, "unauthenticated");
}

#[test]
fn settings_of_tokens_that_cannot_work_end_the_start() {
    let home = tempfile::tempdir().unwrap();
    let (data, short) = (home.path().join("data"), home.path().join("short"));
    std::fs::write(&short, "too short").unwrap();
    let on = [("PUNCTUAL_AUTH__ENABLED", "true"), ("PUNCTUAL_JWT__ISSUER", ISSUER)];
    let secret = ("PUNCTUAL_JWT__SECRET_FILE", path(&short));
    let url = ("PUNCTUAL_JWT__JWKS_URL", "http://issuer.example/keys");
    for (settings, says) in [
        (vec![], "jwt.jwks_url"),
        (vec![url], "https://"),
        (vec![secret], "jwt.algorithms"),
        (vec![secret, ("PUNCTUAL_JWT__ALGORITHMS", "HS256")], "32 bytes"),
        (vec![("PUNCTUAL_JWT__ALGORITHMS", "none")], "must be some of RS256"),
        (vec![("PUNCTUAL_JWT__ROLES", "boss")], "WORD=ROLE"),
    ] {
        let refused =
            punctual(&["serve", "--listen", "127.0.0.1:0", "--data", path(&data)], &[&on[..], &settings[..]].concat());
        let sentence = text(&refused.stderr);
        assert!(!refused.status.success() && sentence.contains(says), "{settings:?}: {sentence}");
    }
}
