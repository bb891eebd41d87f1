//! A server under trial: one store, one process at a time, killed, frozen and started at will.
//!
//! Callers watch [`Machine::door`], which holds a client of the running process, or nothing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use punctual_testkit::http::ApiClient;
use punctual_testkit::process::{Exit, Process};
use tempfile::TempDir;
use tokio::sync::watch;

use crate::history::Recorder;
use crate::planted::Bug;

/// How long a server may take to listen, also on a busy machine.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// How long a server may take to end after SIGTERM.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// The line of a server that is ready, up to its address.
const READY: &str = "listening on ";

/// The settings of a trial: the reaper runs every second, and a node that is silent for three
/// seconds is dead.
const SETTINGS: [(&str, &str); 8] = [
    ("PUNCTUAL_LEADER__LEASE_SECONDS", "3"),
    ("PUNCTUAL_LEADER__RENEWAL_SECONDS", "1"),
    ("PUNCTUAL_WORKERS__LOST_AFTER_SECONDS", "3"),
    ("PUNCTUAL_SCHEDULER__SWEEP_INTERVAL_SECONDS", "1"),
    ("PUNCTUAL_SCHEDULER__VISIBILITY_SECONDS", "5"),
    ("PUNCTUAL_SHUTDOWN__DRAIN_SECONDS", "2"),
    // The webhooks of a trial go to this process.
    ("PUNCTUAL_WEBHOOKS__ALLOW_NETWORKS", "127.0.0.0/8"),
    ("PUNCTUAL_LOG__LEVEL", "warn"),
];

/// A server that can be killed.
#[derive(Debug)]
pub struct Machine {
    program: PathBuf,
    name: String,
    /// The URL of a store that it shares with other servers; none for its own store in its
    /// directory.
    store: Option<String>,
    breakers: bool,
    bug: Option<Bug>,
    home: TempDir,
    recorder: Recorder,
    door: watch::Sender<Option<ApiClient>>,
    process: Option<Process>,
    complaints: Vec<String>,
}

impl Machine {
    /// A machine with an empty directory and nothing running.
    pub fn new(program: &Path, bug: Option<Bug>, recorder: Recorder) -> Self {
        // The server runs in its own directory, where a relative path would name another file.
        let program = program.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Self {
            program,
            name: String::new(),
            store: None,
            breakers: true,
            bug,
            home: tempfile::tempdir().expect("a temporary directory can be made"),
            recorder,
            door: watch::Sender::new(None),
            process: None,
            complaints: Vec::new(),
        }
    }

    /// The same with a name, on a store that it shares with others.
    #[must_use]
    pub fn sharing(self, name: impl Into<String>, store: impl Into<String>) -> Self {
        Self { name: name.into(), store: Some(store.into()), ..self }
    }

    /// The same without circuit breakers, for trials that fail most runs on purpose: a breaker
    /// would open and stop the other tasks.
    #[must_use]
    pub fn without_breakers(self) -> Self {
        Self { breakers: false, ..self }
    }

    /// A client of the running server, or none.
    pub fn door(&self) -> watch::Receiver<Option<ApiClient>> {
        self.door.subscribe()
    }

    /// Starts the server and waits until it listens.
    pub async fn start(&mut self) {
        self.spawn();
        let process = self.process.as_mut().expect("invariant: it was spawned just now");
        let line = process.line(READY, STARTS_WITHIN).await;
        self.act("up");
        self.door.send_replace(Some(ApiClient::new(line.trim_start_matches(READY).trim())));
    }

    /// Starts the server and kills it after this time, while it may still be starting.
    pub async fn kill_during_start(&mut self, after: Duration) {
        self.spawn();
        tokio::time::sleep(after).await;
        self.kill();
    }

    /// SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
            self.act("kill");
            self.listen_to(&process.stderr());
        }
        self.door.send_replace(None);
    }

    /// SIGTERM, and waits for the end.
    pub async fn stop(&mut self) -> Exit {
        let mut process = self.process.take().expect("a server runs");
        process.signal("TERM");
        let exit = process.exit(ENDS_WITHIN).await;
        self.act("stop");
        self.listen_to(&exit.stderr);
        self.door.send_replace(None);
        exit
    }

    /// SIGSTOP: the process exists, but does nothing.
    pub fn freeze(&self) {
        if let Some(process) = &self.process {
            process.signal("STOP");
            self.act("freeze");
        }
    }

    /// SIGCONT: the process continues as if nothing had happened.
    pub fn thaw(&self) {
        if let Some(process) = &self.process {
            self.act("thaw");
            process.signal("CONT");
        }
    }

    /// SQLite's check of its file: `ok`, or its faults. No server may run.
    pub fn integrity(&self) -> String {
        let file = self.data().join("punctual.db");
        let asked = rusqlite::Connection::open(&file)
            .and_then(|database| database.query_row("PRAGMA integrity_check", (), |row| row.get(0)));
        asked.unwrap_or_else(|error| format!("{}: {error}", file.display()))
    }

    /// Panics and errors that the servers have logged so far, and their last lines if they ended by
    /// themselves.
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    fn act(&self, what: &str) {
        self.recorder.act(format!("{} {what}", self.name).trim().to_owned());
    }

    fn listen_to(&mut self, log: &str) {
        // A node logs an error if it cannot reach a shared store. That is not a fault of the node.
        let errors = self.store.is_none();
        let bad = |line: &&str| {
            line.contains("panicked") || line.starts_with("punctual:") || errors && line.contains("ERROR")
        };
        self.complaints.extend(log.lines().filter(bad).map(str::to_owned));
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn spawn(&mut self) {
        let mut command = Command::new(&self.program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(self.data()).current_dir(self.home.path());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PUNCTUAL_")) {
            command.env_remove(name);
        }
        command.envs(SETTINGS).env("PUNCTUAL_BREAKERS__ENABLED", self.breakers.to_string()).env_remove(Bug::VARIABLE);
        if let Some(bug) = self.bug {
            command.env(Bug::VARIABLE, bug.name());
        }
        if let Some(store) = &self.store {
            command.env("PUNCTUAL_STORE", store).env("PUNCTUAL_NAME", &self.name);
        }
        self.act("start");
        self.process = Some(Process::spawn(command));
    }
}
