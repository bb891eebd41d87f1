//! A server that is started for a measurement: a child process on a fresh directory.
//!
//! Whoever spawns one ends it, however the measurement went: then process and directory are
//! gone. Only a panic leaves that to the drop, which kills and does not wait.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::server::Server;

/// How long it may take until it listens.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// How long it may take to end by itself when the measurement is over, …
const ENDS_WITHIN: Duration = Duration::from_secs(3);
/// … and when its end is what is measured: longer than it may take to drain.
const DRAINS_WITHIN: Duration = Duration::from_mins(1);

/// How a server is started.
pub struct Serve {
    /// A directory for it is made below this one.
    pub data: Option<PathBuf>,
    /// Its store. Given by the environment: everybody can read a command line.
    pub store: String,
    /// What else it is set to, by the environment.
    pub settings: &'static [(&'static str, &'static str)],
}

/// See the module.
pub struct Process {
    child: Child,
    data: TempDir,
}

impl Process {
    /// Starts this very binary.
    pub fn spawn(serve: &Serve) -> anyhow::Result<Self> {
        let data = match &serve.data {
            Some(directory) => std::fs::create_dir_all(directory).and_then(|()| TempDir::new_in(directory)),
            None => TempDir::new(),
        }
        .context("cannot make a directory for the server's data")?;
        let child = Command::new(std::env::current_exe()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data.path())
            .env("PUNCTUAL_STORE", &serve.store)
            .envs(serve.settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the server")?;
        Ok(Self { child, data })
    }

    /// Waits until it listens.
    pub async fn listens(&mut self) -> anyhow::Result<Server> {
        let stdout = self.child.stdout.take().context("the server has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(STARTS_WITHIN, lines.next_line())
            .await
            .with_context(|| format!("the server did not start within {} seconds", STARTS_WITHIN.as_secs()))??
            .unwrap_or_default();
        match (line.strip_prefix("listening on "), self.child.id()) {
            (Some(url), Some(pid)) => Ok(Server::started(url.parse()?, pid)),
            _ => bail!("the server did not start: {line:?}"),
        }
    }

    /// Ends it by SIGTERM, and waits until it has drained and ended by itself.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        ask_to_end(self.child.id().context("the server has ended before")?).await;
        let ended = tokio::time::timeout(DRAINS_WITHIN, self.child.wait()).await;
        let status = ended.context("the server does not end after SIGTERM")??;
        anyhow::ensure!(status.success(), "the server ended with {status} after SIGTERM");
        Ok(())
    }

    /// Kills it, and waits until it is gone.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot kill the server")
    }

    /// Ends it, by force if it takes longer than a moment, and removes its directory.
    pub async fn end(mut self) -> anyhow::Result<()> {
        if let Some(pid) = self.child.id() {
            ask_to_end(pid).await;
            if tokio::time::timeout(ENDS_WITHIN, self.child.wait()).await.is_err() {
                self.child.kill().await.context("cannot end the server")?;
            }
        }
        let path = self.data.path().to_owned();
        self.data.close().with_context(|| format!("cannot remove {}", path.display()))
    }
}

/// SIGTERM, by the shell's own kill: the standard library knows only SIGKILL. Where there is no shell, that has to do.
async fn ask_to_end(pid: u32) {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("kill -TERM {pid}")]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.status().await.ok();
}
