//! A server that is started for a measurement: a child process on a fresh directory.
//!
//! [`crate::site`] spawns and ends it, however the measurement went; then process and directory are
//! gone. After a panic the drop kills the process and does not wait.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::server::BenchServer;

/// How long a server may take until it listens.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long it may take to end when the measurement is over, …
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// … and when its end is measured: longer than its drain may take.
const DRAIN_TIMEOUT: Duration = Duration::from_mins(1);

/// How a server is started.
pub struct ServeOptions {
    /// The directory that its own is created in.
    pub data: Option<PathBuf>,
    /// Its store. Passed in the environment, because every user can read a command line.
    pub store: String,
    /// More settings, also passed in the environment.
    pub settings: &'static [(&'static str, &'static str)],
}

/// A server process on a directory of its own.
pub struct ServerProcess {
    child: Child,
    data: TempDir,
}

impl ServerProcess {
    /// Starts the binary that is running.
    pub fn spawn(serve: &ServeOptions) -> anyhow::Result<Self> {
        let data = match &serve.data {
            Some(directory) => std::fs::create_dir_all(directory).and_then(|()| TempDir::new_in(directory)),
            None => TempDir::new(),
        }
        .context("cannot create a directory for the server's data")?;
        let child = Command::new(std::env::current_exe()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data.path())
            .env("PUNCTUAL_STORE", &serve.store)
            // The webhooks of a benchmark go to this process.
            .env("PUNCTUAL_WEBHOOKS__ALLOW_NETWORKS", "127.0.0.0/8")
            // All of its connections come from one address.
            .env("PUNCTUAL_LIMITS__CONNECTIONS_PER_ADDRESS", "1000000")
            .envs(serve.settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the server")?;
        Ok(Self { child, data })
    }

    /// Waits until it listens.
    pub async fn wait_until_listening(&mut self) -> anyhow::Result<BenchServer> {
        let stdout = self.child.stdout.take().context("the server has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(START_TIMEOUT, lines.next_line())
            .await
            .with_context(|| format!("the server did not start within {} seconds", START_TIMEOUT.as_secs()))??
            .unwrap_or_default();
        match (line.strip_prefix("listening on "), self.child.id()) {
            (Some(url), Some(pid)) => Ok(BenchServer::started(url.parse()?, pid)),
            _ => bail!("the server did not start: {line:?}"),
        }
    }

    /// Stops it by SIGTERM, and waits until it has drained and ended.
    pub async fn stop(&mut self) -> anyhow::Result<()> {
        terminate(self.child.id().context("the server has ended before")?).await;
        let ended = tokio::time::timeout(DRAIN_TIMEOUT, self.child.wait()).await;
        let status = ended.context("the server does not end after SIGTERM")??;
        anyhow::ensure!(status.success(), "the server ended with {status} after SIGTERM");
        Ok(())
    }

    /// Kills it, and waits until it is gone.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().await.context("cannot kill the server")
    }

    /// Ends it, by force if it takes too long, and removes its directory.
    pub async fn end(mut self) -> anyhow::Result<()> {
        if let Some(pid) = self.child.id() {
            terminate(pid).await;
            if tokio::time::timeout(END_TIMEOUT, self.child.wait()).await.is_err() {
                self.child.kill().await.context("cannot end the server")?;
            }
        }
        let path = self.data.path().to_owned();
        self.data.close().with_context(|| format!("cannot remove {}", path.display()))
    }
}

/// Sends SIGTERM by the shell's `kill`: the standard library can only send SIGKILL.
async fn terminate(pid: u32) {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("kill -TERM {pid}")]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    shell.status().await.ok();
}
