//! Which targets may be called, and on which machines calls work.

use std::process::Command;

use punctual_core::ids::NodeId;
use punctual_core::networks::AllowedNetworks;
use punctual_core::run_end::RunOutcome;
use punctual_core::state::{By, State};
use punctual_core::trail::Actor;
use punctual_testkit::sink::Sink;
use punctual_worker::SigningKeys;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::support::{AMPLE, call, client, failure, judged, now, task, webhooks};

#[tokio::test]
async fn a_forbidden_target_sees_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let guarded = client(AllowedNetworks::parse(["10.0.0.0/8"]).unwrap());
    let mut words = Vec::new();
    for host in ["127.0.0.1", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0", "LocalHost"] {
        for scheme in ["http", "https"] {
            let task = task(&format!("{scheme}://{host}:{port}/"));
            let outcome = judged(guarded.call(&task, None, &SigningKeys::NONE, now(), Instant::now() + AMPLE).await);
            let RunOutcome::Failed(failed) = outcome.clone() else { panic!("{host}: {outcome:?}") };
            words.push(failed.error.message.into_owned());
            assert_eq!(failure(outcome), ("blocked_target".to_owned(), None, false), "{host}");
        }
    }
    words.dedup();
    assert_eq!(words.len(), 1, "the message says nothing about the target: {words:?}");
    listener.into_std().unwrap().accept().expect_err("no connection came");
}

#[tokio::test]
async fn the_own_api_sees_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap();
    let everything = AllowedNetworks::parse(["0.0.0.0/0", "::/0"]).unwrap();
    let guarded = client(everything.without_own(own, []));
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0", "[::]", "localhost"] {
        let task = task(&format!("http://{host}:{}/v1/queues/q/pause", own.port()));
        let outcome = judged(guarded.call(&task, None, &SigningKeys::NONE, now(), Instant::now() + AMPLE).await);
        assert_eq!(failure(outcome), ("blocked_target".to_owned(), None, false), "{host}");
    }
    let sink = Sink::start();
    let beside =
        judged(guarded.call(&task(&sink.url("/")), None, &SigningKeys::NONE, now(), Instant::now() + AMPLE).await);
    assert!(matches!(beside, RunOutcome::Completed { .. }), "another port of this machine: {beside:?}");
    listener.into_std().unwrap().accept().expect_err("no connection came");
}

#[tokio::test]
async fn a_submission_by_sql_never_calls_this_machine() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0", "localhost"] {
        let mut task = task(&format!("http://{host}:{port}/"));
        task.trail = By { now: now(), node: NodeId::new(1), actor: Actor::Sql }.submitted(State::Pending);
        let outcome = judged(webhooks().call(&task, None, &SigningKeys::NONE, now(), Instant::now() + AMPLE).await);
        assert_eq!(failure(outcome), ("blocked_target".to_owned(), None, false), "{host}");
    }
    listener.into_std().unwrap().accept().expect_err("no connection came");
}

#[tokio::test]
async fn a_name_is_called_at_an_allowed_address() {
    let sink = Sink::start();
    let url = sink.url("/").replace("127.0.0.1", "localhost");
    assert!(matches!(call(&url).await, RunOutcome::Completed { .. }));
    assert!(sink.hits("/")[0].header("host").starts_with("localhost:"));
}

#[tokio::test]
async fn a_name_without_addresses_is_a_failed_resolution() {
    // The resolver refuses a label this long before it asks a server.
    let url = format!("http://{}.localhost/", "a".repeat(70));
    assert_eq!(failure(call(&url).await), ("dns_failed".to_owned(), None, true));
}

#[tokio::test]
async fn an_invalid_callback_is_not_called() {
    for url in ["", "not a url", "ftp://127.0.0.1/"] {
        assert_eq!(failure(call(url).await), ("invalid_callback".to_owned(), None, false), "{url}");
    }
    let mut none = task("http://127.0.0.1/");
    none.body.callback = None;
    let outcome = judged(
        client(AllowedNetworks::loopback()).call(&none, None, &SigningKeys::NONE, now(), Instant::now() + AMPLE).await,
    );
    assert_eq!(failure(outcome), ("invalid_callback".to_owned(), None, false));
}

/// Set for the child process that runs the next test without certificates.
const WITHOUT_CERTIFICATES: &str = "PUNCTUAL_TEST_WITHOUT_CERTIFICATES";

#[tokio::test]
async fn plain_http_needs_no_certificates_and_no_proxy() {
    if std::env::var_os(WITHOUT_CERTIFICATES).is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        again
            .args(["--exact", "targets::plain_http_needs_no_certificates_and_no_proxy"])
            .env(WITHOUT_CERTIFICATES, "1");
        again.env("SSL_CERT_FILE", "/nowhere/at/all").env("SSL_CERT_DIR", "/nowhere/at/all");
        for proxy in ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
            again.env(proxy, "http://127.0.0.1:1");
        }
        let output = again.output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && shown.contains("1 passed"), "{shown}");
        return;
    }
    let sink = Sink::start();
    assert!(matches!(call(&sink.url("/")).await, RunOutcome::Completed { .. }));
    assert_eq!(sink.hits("/").len(), 1);
}
