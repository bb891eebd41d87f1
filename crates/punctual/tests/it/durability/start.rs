//! Servers that must not start: they say why in one clear sentence, at once.

use std::time::Duration;

use punctual_testkit::postgres::Postgres;
use punctual_testkit::process::{Exit, Serve};
use serde_json::json;

use crate::it::world::{PUNCTUAL, SOON, World, caller_of};

/// "At once", on a machine busy with all other tests.
pub const AT_ONCE: Duration = Duration::from_secs(15);

/// Requires an exit with an error whose last line contains one of `words`.
#[track_caller]
pub fn expect_refusal(exit: &Exit, words: &[&str]) {
    assert!(exit.code.is_some_and(|code| code != 0), "it should end with a code that is not 0: {exit}");
    assert!(!exit.stdout.contains("listening on"), "it printed that it listens: {exit}");
    for inside in ["panicked", "stack backtrace", "RUST_BACKTRACE"] {
        assert!(!exit.stderr.contains(inside), "{inside:?} is not a clear sentence: {exit}");
    }
    let stderr = exit.stderr.to_lowercase();
    assert!(words.iter().any(|word| stderr.contains(&word.to_lowercase())), "none of {words:?} is in stderr: {exit}");
}

#[tokio::test]
async fn a_second_process_on_the_same_directory_is_refused() {
    let mut world = World::start().await;
    let exit = world.serve.fail(AT_ONCE).await;
    let data = world.data().display().to_string();
    expect_refusal(&exit, &[&data]);
    expect_refusal(&exit, &["in use", "used by", "another", "already", "locked"]);
    // The first one did not notice.
    let caller = world.caller();
    let id = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    let lease = caller.lease_one("q").await;
    caller.report("complete", &lease, json!({})).await.expect(200);
    caller.until(&id, "COMPLETED").await;
    // When the first one is gone, even killed, the directory is free.
    world.server.kill();
    world.restart().await;
    world.caller().until(&id, "COMPLETED").await;
}

#[tokio::test]
async fn a_port_in_use_is_refused() {
    let world = World::start().await;
    let address = world.server.address().to_owned();
    let exit = Serve::new(PUNCTUAL, world.home().join("other")).listen(&address).fail(AT_ONCE).await;
    expect_refusal(&exit, &[&address]);
    expect_refusal(&exit, &["in use", "already"]);
    world.caller().api.get("/healthz").await;
}

#[tokio::test]
async fn unknown_flags_and_settings_are_refused() {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let serve = Serve::new(PUNCTUAL, home.path().join("data"));
    expect_refusal(&serve.clone().arg("--frobnicate").fail(AT_ONCE).await, &["frobnicate"]);
    let config = home.path().join("punctual.toml");
    for (text, words) in [
        ("frobnicate = 1\n", ["frobnicate"]),
        ("[webhooks]\nfrobnicate = 1\n", ["frobnicate"]),
        ("[webhooks]\nconcurrency = \"many\"\n", ["concurrency"]),
        ("this is not toml\n", ["punctual.toml"]),
    ] {
        std::fs::write(&config, text).expect("a file can be written");
        let exit = serve.clone().arg("--config").arg(&config).fail(AT_ONCE).await;
        expect_refusal(&exit, &words);
    }
    let missing = home.path().join("missing.toml");
    expect_refusal(&serve.clone().arg("--config").arg(&missing).fail(AT_ONCE).await, &["missing.toml"]);
    expect_refusal(&serve.clone().listen("nowhere").fail(AT_ONCE).await, &["nowhere", "listen"]);
    expect_refusal(&serve.arg("--roles").arg("juggler").fail(AT_ONCE).await, &["juggler"]);
}

#[tokio::test]
async fn an_address_beyond_loopback_needs_authentication() {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7400"] {
        let exit = Serve::new(PUNCTUAL, home.path().join("data")).listen(address).fail(AT_ONCE).await;
        expect_refusal(&exit, &["authentication", "loopback"]);
    }
}

#[tokio::test]
async fn a_directory_that_cannot_be_made_is_refused() {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let file = home.path().join("file");
    std::fs::write(&file, "not a directory").expect("a file can be written");
    expect_refusal(&Serve::new(PUNCTUAL, &file).fail(AT_ONCE).await, &["file"]);
    expect_refusal(&Serve::new(PUNCTUAL, file.join("below")).fail(AT_ONCE).await, &["below"]);
}

#[tokio::test]
async fn stdout_has_only_the_ready_line() {
    let mut world = World::start().await;
    let url = world.server.url().to_owned();
    assert_eq!(world.caller().api.get("/readyz").await.status(), 200);
    assert_eq!(world.server.process().stdout().trim(), format!("listening on {url}"));
    let port: u16 = world.server.address().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
    assert_ne!(port, 0);
    world.server.terminate();
    let exit = world.server.exit(SOON).await;
    assert_eq!(exit.stdout.lines().count(), 1, "logs belong on stderr: {exit}");
}

/// It would fail after it has said that it listens.
#[tokio::test]
async fn too_few_open_files_for_the_store_are_refused() {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let postgres = Postgres::start().await;
    let sqlite = Serve::new(PUNCTUAL, home.path().join("data"));
    let shared = sqlite.clone().setting("STORE", &postgres.create_database().await);
    let script = r#"ulimit -n "$0" && exec "$@""#;
    for serve in [sqlite, shared] {
        let with_files = |files: &str| serve.clone().under(["sh", "-c", script, files]);
        let exit = with_files("40").fail(AT_ONCE).await;
        expect_refusal(&exit, &["this process may have 40 files open"]);
        // It may raise the limit itself, but for the hard one.
        let raising = serve.clone().under(["sh", "-c", r#"ulimit -Sn "$0" && exec "$@""#, "40"]);
        let mut raised = raising.start().await;
        raised.terminate();
        assert_eq!(raised.exit(SOON).await.code, Some(0));
        // As many as it asks for are enough.
        let needs = exit.stderr.split("a node needs ").nth(1).and_then(|rest| rest.split(' ').next());
        let server = with_files(needs.expect("it says how many")).start().await;
        let caller = caller_of(&server);
        caller.submit_id(json!({"type": "t", "queue": "q"})).await;
        caller.lease_one("q").await;
        assert_eq!(caller.api.get("/readyz").await.status(), 200, "{}", server.log());
        assert!(!server.log().contains("Too many open files"), "{}", server.log());
    }
}
