//! API keys from their making to their end.

use std::collections::BTreeSet;
use std::time::Duration;

use punctual_client::NewTask;
use punctual_client::http::Client;
use punctual_testkit::eventually::eventually;
use punctual_testkit::process::Serve;
use serde_json::{Value, json};

use super::{Guarded, init, new_key};
use crate::it::config::{punctual, text};
use crate::it::world::{PUNCTUAL, SOON, in_seconds, written};

#[tokio::test]
async fn the_first_key_is_made_once_and_works() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let arguments = ["--data", data.to_str().unwrap()];
    let key = init(&arguments);
    assert!(key.starts_with("pk_admin_"), "{key}");
    let refused = punctual(&[&["init"], &arguments[..]].concat(), &[]);
    assert_eq!((refused.status.code(), text(&refused.stdout).as_str()), (Some(1), ""));
    let sentence = text(&refused.stderr);
    assert!(sentence.contains("--again") && sentence.lines().count() == 1, "{sentence}");
    let second = init(&[&arguments[..], &["--again", "--name", "Ops"]].concat());
    assert!(second.starts_with("pk_ops_") && second != key, "{second}");

    let server = super::guarded(Serve::new(PUNCTUAL, &data)).start().await;
    let busy = punctual(&[&["init"], &arguments[..]].concat(), &[]);
    assert_eq!(busy.status.code(), Some(1));
    assert!(text(&busy.stderr).contains("in use") && text(&busy.stderr).contains("stop the server"), "{busy:?}");
    for (key, name) in [(&key, "admin"), (&second, "Ops")] {
        let shown = punctual_testkit::http::ApiClient::new(server.url()).key(key).get("/v1/whoami").await.expect(200);
        assert_eq!(
            [&shown["principal"], &shown["tenant"], &shown["role"], &shown["types"], &shown["expires_at"]],
            [&json!(name), &json!("default"), &json!("admin"), &json!([]), &Value::Null]
        );
    }
}

#[tokio::test]
async fn whatever_is_wrong_with_a_credential_the_answer_is_the_same() {
    let world = Guarded::start().await;
    let (id, good) = new_key(&world.admin, "default", json!({"role": "viewer"})).await;
    let (gone_id, gone) = new_key(&world.admin, "default", json!({"role": "viewer"})).await;
    world.admin.delete(&format!("/v1/admin/tenants/default/keys/{gone_id}")).await;
    let flipped = |at: usize| {
        let mut bytes = good.clone().into_bytes();
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        String::from_utf8(bytes).unwrap()
    };
    let bearer = |text: &str| vec![("authorization", format!("Bearer {text}"))];
    let corpus: Vec<Vec<(&str, String)>> = vec![
        vec![],
        bearer(""),
        bearer(&gone),
        bearer(&flipped(good.len() - 1)),
        bearer(&flipped(good.len() - 40)),
        bearer(&flipped(12)),
        bearer(&good[1..]),
        bearer(&good[..good.len() - 1]),
        bearer(&format!("{good}0")),
        bearer(&good.to_uppercase()),
        bearer(&id),
        bearer("eyJhbGciOiJub25lIn0.e30."),
        bearer(&format!("{good} {good}")),
        bearer(&"x".repeat(8_000)),
        vec![("authorization", good.clone())],
        vec![("authorization", format!("Basic {good}"))],
        vec![("authorization", format!("Bearer\t{good}"))],
        vec![("x-client-signature", format!("keyid={id},ts=1,nonce=nonce-17,sig={}", "0".repeat(64)))],
        vec![("x-client-signature", "keyid=".to_owned())],
        vec![("authorization", format!("Bearer {good}")), ("authorization", format!("Bearer {good}"))],
        vec![("authorization", format!("Bearer {good}")), ("x-client-signature", "keyid=".to_owned())],
    ];
    let mut bodies = BTreeSet::new();
    for headers in corpus {
        let call = world.stranger().call("GET", "/v1/tasks");
        let call = headers.iter().fold(call, |call, (name, value)| call.header(name, value));
        let answer = call.send().await;
        answer.problem_code(401, "unauthenticated");
        assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{headers:?}");
        bodies.insert(answer.text().to_owned());
    }
    assert_eq!(bodies.len(), 1, "{bodies:#?}");
    let good_one = world.stranger().call("GET", "/v1/tasks").header("authorization", &format!("bearer  {good}"));
    good_one.send().await.expect(200);
}

#[tokio::test]
async fn a_key_is_in_no_list_and_in_no_log() {
    let world = Guarded::start().await;
    let (id, key) = new_key(&world.admin, "default", json!({"role": "submitter"})).await;
    let caller = world.stranger().key(&key);
    caller.post("/v1/tasks", &json!({"type": "t"})).await.expect(201);
    caller.post("/v1/tasks", &json!({"type": "no spaces"})).await.problem(422);
    caller.get("/v1/admin/nodes").await.problem_code(403, "forbidden");
    let wrong = format!("{}{}", &key[..key.len() - 1], if key.ends_with('0') { '1' } else { '0' });
    world.stranger().key(&wrong).get("/v1/tasks").await.problem(401);
    let listed = world.admin.get("/v1/admin/tenants/default/keys").await;
    let items = listed.expect(200)["items"].clone();
    assert_eq!((&items[1]["key_id"], &items[1]["role"]), (&json!(id), &json!("submitter")), "{items:#}");
    world.server.until_logged(&["an API key was made", &id]).await;
    let metrics = world.admin.get("/metrics").await.text().to_owned();
    for key in [&key, &world.admin_key, &wrong] {
        let secret = key.rsplit('_').next().unwrap();
        for shown in [&world.server.log(), listed.text(), &metrics] {
            assert!(!shown.contains(&secret[..16]) && !shown.contains(&secret[48..]), "a secret is shown");
        }
    }
}

#[tokio::test]
async fn the_last_use_of_a_key_is_shown() {
    let world = Guarded::start().await;
    let (_, key) = new_key(&world.admin, "default", json!({"role": "viewer"})).await;
    let listed = async || world.admin.get("/v1/admin/tenants/default/keys").await.expect(200)["items"][1].clone();
    assert_eq!(listed().await["last_used_at"], Value::Null);
    world.stranger().key(&key).get("/v1/whoami").await.expect(200);
    eventually("the use is written", Duration::from_secs(40), async || {
        let shown = listed().await;
        if shown["last_used_at"].is_string() { Ok(()) } else { Err(format!("{shown:#}")) }
    })
    .await;
}

#[tokio::test]
async fn a_key_ends_when_it_was_to_end() {
    let world = Guarded::start().await;
    let end = written(in_seconds(2.0));
    let (_, key) = new_key(&world.admin, "default", json!({"role": "viewer", "expires_at": end})).await;
    let caller = world.stranger().key(&key);
    assert_eq!(caller.get("/v1/whoami").await.expect(200)["expires_at"], json!(end));
    eventually("the key ends", SOON, async || match caller.get("/v1/whoami").await {
        answer if answer.status() == 401 => Ok(()),
        answer => Err(answer.to_string()),
    })
    .await;
    for end in ["yesterday".to_owned(), written(in_seconds(-1.0))] {
        let key = json!({"name": "k", "role": "viewer", "expires_at": end});
        world.admin.post("/v1/admin/tenants/default/keys", &key).await.invalid("/expires_at");
    }
}

#[tokio::test]
async fn both_keys_work_until_the_old_one_ends() {
    let world = Guarded::start().await;
    let wanted = json!({"role": "submitter", "types": ["mail.*"], "payloads": false});
    let (id, old) = new_key(&world.admin, "default", wanted).await;
    let rotate = format!("/v1/admin/tenants/default/keys/{id}/rotate");
    let made = world.admin.post(&rotate, &json!({"expires_at": written(in_seconds(3.0))})).await.expect(201);
    let new = world.stranger().key(made["key"].as_str().unwrap());
    let old = world.stranger().key(&old);
    let who = new.get("/v1/whoami").await.expect(200);
    assert_eq!(
        [&who["role"], &who["types"], &who["payloads"], &who["expires_at"]],
        [&json!("submitter"), &json!(["mail.*"]), &json!(false), &Value::Null]
    );
    old.get("/v1/whoami").await.expect(200);
    eventually("the old key ends", SOON, async || match old.get("/v1/whoami").await {
        answer if answer.status() == 401 => Ok(()),
        answer => Err(answer.to_string()),
    })
    .await;
    new.get("/v1/whoami").await.expect(200);
    world.admin.post(&rotate, &json!({})).await.problem_code(404, "not_found");
}

#[tokio::test]
async fn bad_credentials_are_throttled_and_good_ones_are_not() {
    let world = Guarded::start().await;
    let (_, key) = new_key(&world.admin, "default", json!({"role": "viewer"})).await;
    let (_, other) = new_key(&world.admin, "default", json!({"role": "viewer"})).await;
    // A well formed key with the id of one and the secret of another has a wrong checksum; one of
    // another server is unknown here.
    let home = tempfile::tempdir().unwrap();
    let foreign = init(&["--data", home.path().join("data").to_str().unwrap()]);
    let mut refused = None;
    for _ in 0..30 {
        let answer = world.stranger().key(&foreign).get("/v1/whoami").await;
        if answer.status() == 429 {
            refused = Some(answer);
            break;
        }
        answer.problem_code(401, "unauthenticated");
    }
    let refused = refused.expect("it is throttled");
    refused.problem_code(429, "rate_limited");
    assert!(refused.header("retry-after").is_some_and(|wait| wait.parse::<u32>().is_ok()), "{refused}");
    for key in [&key, &other] {
        world.stranger().key(key).get("/v1/whoami").await.expect(200);
    }
}

#[tokio::test]
async fn the_benchmark_shows_a_key_from_a_file() {
    let world = Guarded::start().await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("key");
    std::fs::write(&file, format!("{}\n", world.admin_key)).unwrap();
    let (url, file) = (world.server.url(), file.to_str().unwrap());
    let submit = ["bench", "submit", "--tasks", "20", "--single", "--url", url];
    let measured = punctual(&submit, &[("PUNCTUAL_API_KEY_FILE", file)]);
    assert!(measured.status.success(), "{}", text(&measured.stderr));
    let flood = punctual(&["bench", "overload", "--seconds", "1", "--url", url, "--key-file", file], &[]);
    assert!(flood.status.success(), "{}", text(&flood.stderr));
    let refused = punctual(&submit, &[]);
    assert!(!refused.status.success() && text(&refused.stderr).contains("401"), "{refused:?}");
    // The variable is no setting of the server.
    assert!(punctual(&["config"], &[("PUNCTUAL_API_KEY_FILE", file)]).status.success());
}

/// What a program in Rust does.
#[tokio::test]
async fn the_rust_client_shows_a_key() {
    let world = Guarded::start().await;
    let (_, key) = new_key(&world.admin, "default", json!({"role": "submitter"})).await;
    let client = Client::new(world.server.url()).unwrap();
    let task = || NewTask::of_type("t");
    assert_eq!(client.submit(task()).await.unwrap_err().code(), Some("unauthenticated"));
    let client = client.key(&key).unwrap();
    assert_eq!(client.submit(task()).await.unwrap().task.tenant, "default");
    assert!(!format!("{client:?}").contains(key.rsplit('_').next().unwrap()), "it prints no key");
    assert!(client.key("no\nkey").is_err());
}
