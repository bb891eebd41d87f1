//! The command line and the settings: the values in force, or one clear sentence.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use punctual_testkit::process::{Exit, Serve};

use super::world::{PUNCTUAL, World};

/// "At once", on a machine that is busy with all other tests.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Runs the program to its end, without the settings of the environment.
pub fn punctual(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(PUNCTUAL);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PUNCTUAL_")) {
        command.env_remove(name);
    }
    command.args(arguments).envs(environment.iter().copied()).output().expect("the program runs")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// A `serve` that is expected to fail, with these arguments instead of the usual ones.
async fn refused(arguments: &[&str]) -> Exit {
    let home = tempfile::tempdir().expect("a temporary directory can be made");
    let mut serve = Serve::new(PUNCTUAL, home.path().join("data"));
    if let ["--listen", address] = arguments {
        serve = serve.listen(*address);
    } else {
        serve = arguments.iter().fold(serve, Serve::arg);
    }
    serve.fail(AT_ONCE).await
}

/// Requires a non-zero exit code, nothing on stdout, and one line on stderr, which it returns.
#[track_caller]
fn one_sentence(exit: &Exit) -> String {
    assert!(exit.code.is_some_and(|code| code != 0), "{exit}");
    assert!(exit.stdout.is_empty() && exit.stderr.lines().count() == 1, "{exit}");
    exit.stderr.trim_end().to_owned()
}

#[test]
fn it_prints_its_version() {
    let version = punctual(&["--version"], &[]);
    assert!(version.status.success());
    assert_eq!(text(&version.stdout), concat!("punctual ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn config_shows_each_value_with_its_origin() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("my.toml");
    std::fs::write(&file, "listen = '127.0.0.1:1'\ndata = 'here'\n[webhooks]\nper_target = 3").unwrap();
    let file = file.to_str().unwrap();
    let environment = [("PUNCTUAL_WEBHOOKS__CONNECT_TIMEOUT_SECONDS", "0.5"), ("PUNCTUAL_LISTEN", "127.0.0.1:2")];
    let shown = punctual(&["config", "--config", file, "--listen", "127.0.0.1:3"], &environment);
    assert!(shown.status.success(), "{}", text(&shown.stderr));
    let shown = text(&shown.stdout);
    for line in [
        "listen = \"127.0.0.1:3\" # from --listen".to_owned(),
        format!("data = \"here\" # in {file}"),
        "connect_timeout_seconds = 0.5 # from PUNCTUAL_WEBHOOKS__CONNECT_TIMEOUT_SECONDS".to_owned(),
        format!("per_target = 3 # in {file}"),
        "concurrency = 1024".to_owned(),
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line} is not in\n{shown}");
    }
}

#[test]
fn config_shows_no_password() {
    let shown = punctual(&["config", "--store", "postgres://punctual:a/hunter2/b@127.0.0.1:1/d"], &[]);
    let shown = text(&shown.stdout);
    assert!(shown.contains("store = \"postgres://punctual:…@127.0.0.1:1/d\" # from --store\n"), "{shown}");
}

#[test]
fn the_default_file_can_be_printed_and_used() {
    let home = tempfile::tempdir().unwrap();
    let printed = punctual(&["config", "--default"], &[]);
    assert_eq!(text(&printed.stdout), include_str!("../../punctual.default.toml"));
    let file = home.path().join("all.toml");
    std::fs::write(&file, &printed.stdout).unwrap();
    let used = punctual(&["config"], &[("PUNCTUAL_CONFIG", file.to_str().unwrap())]);
    assert!(used.status.success(), "{}", text(&used.stderr));
}

#[test]
fn all_faults_are_reported_at_once() {
    let faulty = punctual(
        &["config", "--store", "oracle", "--roles", "api,juggler"],
        &[("PUNCTUAL_LIMITS__PAYLOAD_BYTES", "0"), ("PUNCTUAL_LIMITS__PAYLOD_BYTES", "1")],
    );
    assert_eq!(faulty.status.code(), Some(1));
    let output = text(&faulty.stderr);
    assert!(output.starts_with("punctual: the configuration has 4 faults:\n"), "{output}");
    for fault in [
        r#"store = "oracle" from --store: this build knows the stores sqlite and postgres://"#,
        r#"roles = ["api", "juggler"] from --roles: "juggler" is not a role; there are api, scheduler, worker and leader"#,
        "limits.payload_bytes = 0 from PUNCTUAL_LIMITS__PAYLOAD_BYTES: must be between 1 and 16777216",
        "limits.paylod_bytes from PUNCTUAL_LIMITS__PAYLOD_BYTES: unknown key; did you mean limits.payload_bytes?",
    ] {
        assert!(output.lines().any(|line| line.trim() == fault), "{fault} is not in\n{output}");
    }
}

#[tokio::test]
async fn serve_refuses_bad_settings_in_one_sentence() {
    for (arguments, sentence) in [
        (["--listen", "0.0.0.0:0"], "authentication is not configured"),
        (["--store", "mysql://punctual:hunter2@db/punctual"], "mysql:// is not supported yet"),
        (["--store", "postgres://punctual:hunter2@127.0.0.1:1/punctual"], "PostgreSQL at 127.0.0.1:1"),
        (["--store", "punctual:hunter2@db/punctual"], "this build knows the stores sqlite and postgres://"),
        (["--store", "postgres://punctual:a/hunter2/b@127.0.0.1:1/punctual"], "PostgreSQL at 127.0.0.1:1/punctual"),
        (["--store", "postgres://punctual:a@hunter2@127.0.0.1:1/punctual"], "as %40"),
        (["--store", "postgres://"], "it names no host"),
        (["--roles", "api,scheduler,leader"], "both scheduler and worker, or neither"),
        (["--broker", "kafka://broker"], "kafka:// is not supported yet"),
        (["--coordinator", "etcd://one"], "etcd:// is not supported yet"),
        (["--roles", "api,dashboard"], "there is no dashboard in this version"),
        (["--config", "does-not-exist.toml"], "cannot read does-not-exist.toml"),
    ] {
        let output = one_sentence(&refused(&arguments).await);
        assert!(output.starts_with("punctual: ") && output.contains(sentence), "{arguments:?}: {output}");
        assert!(!output.contains("hunter2"), "a password is shown: {output}");
    }
}

#[tokio::test]
async fn serve_refuses_a_port_that_is_taken() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = one_sentence(&refused(&["--listen", &address]).await);
    assert!(output.contains(&address), "{output}");
}

#[tokio::test]
async fn serve_refuses_a_directory_it_cannot_use() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    let exit = Serve::new(PUNCTUAL, Path::new(&file).join("data")).fail(AT_ONCE).await;
    one_sentence(&exit);
}

#[tokio::test]
async fn a_second_signal_ends_the_server_at_once() {
    // A target that accepts and never answers keeps the server draining.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut world = World::start().await;
    let url = format!("http://{}/", silent.local_addr().unwrap());
    let id = world.caller().submit_id(serde_json::json!({"type": "slow", "callback_url": url})).await;
    world.caller().until(&id, "RUNNING").await;
    world.server.terminate();
    punctual_testkit::eventually::eventually("the first signal is noticed", AT_ONCE, async || {
        let log = world.server.log();
        if log.contains("shutting down") { Ok(()) } else { Err(log) }
    })
    .await;
    world.server.terminate();
    assert_eq!(world.server.exit(AT_ONCE).await.code, Some(130));
}

#[tokio::test]
async fn the_schema_goes_up_and_down_while_no_server_runs() {
    let mut world = World::start().await;
    let data = world.data();
    let data = data.to_str().unwrap();
    let busy = punctual(&["migrate", "status", "--store", "sqlite", "--data", data], &[]);
    assert!(!busy.status.success() && text(&busy.stderr).contains("in use"), "{busy:?}");
    let kept = world.caller().submit_id(serde_json::json!({"type": "kept", "delay_seconds": 600})).await;
    world.server.terminate();
    assert_eq!(world.server.exit(AT_ONCE).await.code, Some(0));

    let migrate = |arguments: &[&str]| {
        let done = punctual(&[&["migrate"], arguments, &["--data", data]].concat(), &[]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stdout)
    };
    assert!(migrate(&["status"]).starts_with("0001 tasks applied 20"));
    assert!(migrate(&["down"]).starts_with("taken back: 0"), "a step that deletes nothing needs no --to");
    assert!(migrate(&["down", "--to", "1"]).ends_with("0002\n"));
    let unconfirmed = punctual(&["migrate", "down", "--data", data], &[]);
    assert!(!unconfirmed.status.success() && text(&unconfirmed.stderr).contains("--to 0"), "{unconfirmed:?}");
    assert!(migrate(&["up"]).starts_with("applied: 0002"));
    world.restart().await;
    assert_eq!(world.caller().list_ids("").await, [kept]);
    world.server.terminate();
    assert_eq!(world.server.exit(AT_ONCE).await.code, Some(0));

    assert!(migrate(&["down", "--to", "0"]).ends_with("0001\n"));
    assert!(migrate(&["status"]).starts_with("0001 tasks not applied\n"));
    assert!(migrate(&["up"]).starts_with("applied: 0001"));
    assert_eq!(migrate(&["up"]), "applied: nothing\n");
    assert!(migrate(&["down", "--to", "1"]).ends_with("0002\n"));
    assert!(migrate(&["down"]).ends_with("0001\n"), "an empty store loses nothing");
    world.restart().await;
}
