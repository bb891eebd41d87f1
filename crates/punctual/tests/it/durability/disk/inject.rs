//! Makes system calls of the server fail or take long, by `strace`.
//!
//! `strace` counts calls for each thread by itself. One thread opens the database and another does
//! everything after, so the two are swept separately: the start by [`Fault::starter`], the rest by
//! [`Fault::attach`].

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use punctual_testkit::eventually::eventually;
use punctual_testkit::process::Process;

use crate::it::world::SOON;

/// The calls of a thread that fail.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// This one only, counted from one.
    Nth(u32),
    /// This one and all that follow.
    From(u32),
}

/// What happens instead of a system call, or before it.
#[derive(Clone, Debug)]
pub struct Fault {
    call: &'static str,
    effect: String,
}

impl Fault {
    /// `call` returns `errno` and does nothing.
    pub fn error(call: &'static str, errno: &str, when: When) -> Self {
        let when = match when {
            When::Nth(ordinal) => ordinal.to_string(),
            When::From(ordinal) => format!("{ordinal}+"),
        };
        Self { call, effect: format!("error={errno}:when={when}") }
    }

    /// `call` returns `value`, as if it had done its work, and does nothing.
    pub fn pretence(call: &'static str, value: usize) -> Self {
        Self { call, effect: format!("retval={value}") }
    }

    /// Every `call` begins this much later.
    pub fn delay(call: &'static str, by: Duration) -> Self {
        Self { call, effect: format!("delay_enter={}", by.as_micros()) }
    }

    /// The command that starts a server so that the fault holds from its first call on.
    pub fn starter(&self, log: &Path) -> Vec<OsString> {
        // The tracer is a grandchild, so that the started process is the server itself.
        let mut words: Vec<OsString> = ["strace", "-D", "--seccomp-bpf"].map(OsString::from).into();
        demand_strace();
        words.extend(self.arguments(log));
        words
    }

    /// Injects the fault into a running process from now on.
    pub async fn attach(&self, process: u32, log: &Path) -> Injection {
        demand_strace();
        let mut command = Command::new("strace");
        command.args(self.arguments(log)).arg("-p").arg(process.to_string());
        let mut strace = Process::spawn(command);
        eventually("strace is attached", SOON, async || {
            let stderr = strace.stderr();
            assert!(!strace.is_over(), "strace cannot attach; it may lack the right to trace processes: {stderr}");
            if stderr.contains(" attached") { Ok(()) } else { Err(stderr) }
        })
        .await;
        Injection { strace, log: log.to_owned() }
    }

    fn arguments(&self, log: &Path) -> Vec<OsString> {
        let Self { call, effect } = self;
        let (trace, inject) = (format!("trace={call}"), format!("inject={call}:{effect}"));
        let mut words: Vec<OsString> =
            ["-f", "-e", "signal=none", "-e", &trace, "-e", &inject, "-o"].map(Into::into).into();
        words.push(log.into());
        words
    }
}

/// A fault that a running server has for as long as this value lives.
#[derive(Debug)]
pub struct Injection {
    strace: Process,
    log: PathBuf,
}

impl Injection {
    /// How often the fault has occurred so far.
    pub fn met(&self) -> usize {
        met(&self.log)
    }

    /// Removes the fault; the server continues.
    pub fn end(mut self) {
        self.strace.kill();
    }

    /// Waits until the server is gone; returns how often the fault occurred.
    pub async fn until_the_end(mut self) -> usize {
        self.strace.exit(SOON).await;
        self.met()
    }
}

/// How often a fault occurred, by the output of `strace`.
pub fn met(log: &Path) -> usize {
    let calls = std::fs::read_to_string(log).unwrap_or_default();
    calls.lines().filter(|line| line.contains("(INJECTED)") || line.contains("(DELAYED)")).count()
}

fn demand_strace() {
    let found = Command::new("strace").arg("--version").output().is_ok_and(|asked| asked.status.success());
    assert!(found, "these tests need strace, which is not installed: scripts/install-test-deps installs it");
}
