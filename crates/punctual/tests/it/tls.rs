//! The product on a PostgreSQL that accepts its user over TLS only.

use std::process::Command;
use std::time::Duration;

use punctual_testkit::certificates::Authority;
use punctual_testkit::postgres::Postgres;
use punctual_testkit::process::Serve;
use punctual_testkit::sink::Sink;
use serde_json::json;

use crate::it::world::{PUNCTUAL, caller_of};

#[tokio::test]
async fn a_node_verifies_the_server_over_tls() {
    let (postgres, authority) = (Postgres::start().await, Authority::new("a root"));
    postgres.speak_tls(&authority.issue(&["127.0.0.1"])).await;
    let user = postgres.user_of_tls().await;
    let home = tempfile::tempdir().unwrap();
    let file = |name: &str| home.path().join(name).display().to_string();
    authority.write_root(&home.path().join("root.crt"));
    Authority::new("another root").write_root(&home.path().join("other.crt"));
    let url = postgres.create_database().await.replace("postgres@", &format!("{user}@"));
    let secure = |root: &str| format!("{url}?sslmode=verify-full&sslrootcert={}", file(root));
    let serve = |store: &str| Serve::new(PUNCTUAL, home.path().join("unused")).setting("STORE", store);

    let node = serve(&secure("root.crt")).start().await;
    let (caller, sink) = (caller_of(&node), Sink::start());
    let pushed = caller.submit_id(json!({"type": "t", "queue": "p", "callback_url": sink.url("/")})).await;
    caller.until(&pushed, "COMPLETED").await;
    let pulled = caller.submit_id(json!({"type": "t", "queue": "q"})).await;
    let lease = caller.lease_one("q").await;
    caller.report("complete", &lease, json!({})).await.expect(200);
    assert_eq!(caller.list_ids("").await, [pulled, pushed]);

    let mut migrate = Command::new(PUNCTUAL);
    let status = migrate.args(["migrate", "status"]).env("PUNCTUAL_STORE", secure("root.crt")).output().unwrap();
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));

    let within = Duration::from_secs(30);
    for (store, sentence) in [
        (secure("other.crt"), "no root that is trusted has signed it; name the file with its root in sslrootcert"),
        (format!("{url}?sslmode=verify-full"), "sslmode=verify-full needs sslrootcert=FILE"),
        (format!("{url}?sslmod=require"), "it has a parameter \"sslmod\", which is not known; there are sslmode"),
        (format!("{url}?sslmode=disable"), "refuses the user or its password"),
    ] {
        let exit = serve(&store).fail(within).await;
        assert_eq!((exit.code, exit.stderr.lines().count()), (Some(1), 1), "{exit}");
        assert!(exit.stderr.contains(sentence), "{exit}");
    }
}
