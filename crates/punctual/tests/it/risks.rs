//! What a node warns of when it starts: who else can read its data, and its passwords.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use punctual_testkit::postgres::Postgres;
use punctual_testkit::process::Serve;

use crate::it::world::{PUNCTUAL, SOON};

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is the test's own");
}

#[tokio::test]
async fn a_data_directory_open_to_others_is_warned_of() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let serve = Serve::new(PUNCTUAL, &data).under(["sh", "-c", "umask 000; exec \"$@\"", "sh"]);
    let mut node = serve.start().await;
    let log = node.log();
    assert!(!log.contains("WARN"), "what the node makes is private: {log}");
    node.terminate();
    assert_eq!(node.exit(SOON).await.code, Some(0));
    set_mode(&data, 0o770);
    set_mode(&data.join("punctual.db"), 0o644);
    let node = serve.start().await;
    node.until_logged(&["WARN", "other users can put files into the data directory", "run chmod go-w on it"]).await;
    node.until_logged(&["WARN", "other users could open files of the store", "\"punctual.db\""]).await;
    let mode = data.join("punctual.db").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_password_on_the_command_line_is_warned_of() {
    let postgres = Postgres::start().await;
    let home = tempfile::tempdir().unwrap();
    let url = postgres.create_database().await.replace("postgres@", "postgres:hunter2@");
    let node = Serve::new(PUNCTUAL, home.path().join("unused")).arg("--store").arg(&url).start().await;
    node.until_logged(&["WARN", "can read the password in --store; give the address in PUNCTUAL_STORE"]).await;
    assert!(!node.log().contains("hunter2"), "{}", node.log());
}
