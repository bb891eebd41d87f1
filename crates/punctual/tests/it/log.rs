//! The log: lines that programs can read, and a server that works even if nothing reads them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use punctual_testkit::eventually::eventually;
use punctual_testkit::http::ApiClient;
use punctual_testkit::process::Process;
use serde_json::Value;

use super::enqueue::Site;
use super::world::{PUNCTUAL, SOON, id_of};

fn serve(level: &str, data: &std::path::Path) -> Command {
    let mut command = Command::new(PUNCTUAL);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    command.env("PUNCTUAL_LOG__FORMAT", "json").env("PUNCTUAL_LOG__LEVEL", level);
    command
}

#[tokio::test]
async fn every_line_is_json_with_a_sentence() {
    let home = tempfile::tempdir().unwrap();
    let mut process = Process::spawn(serve("debug", &home.path().join("data")));
    process.line("listening on ", SOON).await;
    process.signal("TERM");
    let exit = process.exit(SOON).await;
    assert_eq!(exit.code, Some(0), "{exit}");
    assert!(exit.stderr.lines().count() >= 2, "{exit}");
    for line in exit.stderr.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for member in ["timestamp", "level", "message"] {
            assert!(event[member].is_string(), "no {member} in {line}");
        }
    }
}

#[tokio::test]
async fn a_stuck_stderr_does_not_stop_the_server() {
    let home = tempfile::tempdir().unwrap();
    let mut command = serve("trace", &home.path().join("data"));
    // Nothing reads the pipe: it is full after 64 KiB.
    let mut server = Killed(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts"));
    let mut ready = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let api = ApiClient::new(ready.trim().strip_prefix("listening on ").expect("the ready line"));
    for number in 0..1_000 {
        api.post("/v1/tasks", &serde_json::json!({"type": "noise", "payload": number})).await.expect(201);
    }
    let unread = server.0.stderr.take().unwrap();
    let terminated = Command::new("kill").arg(server.0.id().to_string()).status().expect("kill runs");
    assert!(terminated.success());
    let status = tokio::task::spawn_blocking(move || server.0.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
    // The log must be larger than the pipe, or the test checks nothing.
    let logged: usize = BufReader::new(unread).split(b'\n').map_while(Result::ok).map(|line| line.len() + 1).sum();
    assert!(logged >= 60 * 1_024, "the server logged only {logged} bytes");
}

#[tokio::test]
async fn an_unreadable_task_is_logged_with_the_reason() {
    let site = Site::start(1).await;
    let caller = site.caller(0);
    let id = caller.submit_id(serde_json::json!({"type": "t", "queue": "q"})).await;
    let damage = format!("UPDATE punctual.tasks SET metadata = '[1]' WHERE 'task_' || id = '{id}'");
    site.client().await.batch_execute(&damage).await.expect("it is damaged");
    let other = caller.submit_id(serde_json::json!({"type": "t", "queue": "q"})).await;
    assert_eq!(id_of(&caller.lease_one("q").await["task"]), other);
    let line = eventually("it is logged", SOON, async || {
        let log = site.nodes[0].log();
        let line = log.lines().find(|line| line.contains("it is moved to the quarantine")).map(str::to_owned);
        line.ok_or(log)
    })
    .await;
    assert!(line.contains(&id) && line.contains("its metadata cannot be read"), "{line}");
    let refused = caller.api.get(&format!("/v1/tasks/{id}")).await;
    assert_eq!(refused.status(), 500, "{refused}");
    assert!(refused.text().contains("`punctual.quarantine`"), "{refused}");
}

/// A child that does not outlive the test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        if self.0.kill().is_ok() {
            self.0.wait().ok();
        }
    }
}
