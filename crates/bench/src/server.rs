//! The server that is measured: a child process on a fresh directory, or one that is given.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// See the module. A started server is killed and its directory removed when this is dropped.
pub struct Server {
    /// Where it listens.
    pub url: String,
    child: Option<Child>,
    _data: Option<TempDir>,
}

impl Server {
    /// A server that runs already.
    pub fn given(url: &str) -> Self {
        Self { url: url.trim_end_matches('/').to_owned(), child: None, _data: None }
    }

    /// Starts this very binary.
    pub async fn start(data: Option<&Path>) -> anyhow::Result<Self> {
        let data = match data {
            Some(directory) => TempDir::new_in(directory),
            None => TempDir::new(),
        }
        .context("cannot make a directory for the server's data")?;
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(data.path())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the server")?;
        let stdout = child.stdout.take().context("the server has no output")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(Duration::from_secs(30), lines.next_line())
            .await
            .context("the server did not start within 30 seconds")??
            .unwrap_or_default();
        let Some(url) = line.strip_prefix("listening on ") else { bail!("the server did not start: {line:?}") };
        Ok(Self { url: url.to_owned(), child: Some(child), _data: Some(data) })
    }

    /// `ADDRESS:PORT`, as a socket connects to it.
    pub fn address(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Memory it occupies, if it is ours.
    pub fn rss_megabytes(&self) -> Option<f64> {
        let status = self.proc_file("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kilobytes / 1_024.0)
    }

    /// Seconds of processor time it has used, and how often it was woken, if it is ours.
    pub fn processor(&self) -> Option<(f64, u64)> {
        let stat = self.proc_file("stat")?;
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks: f64 = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        let pid = self.child.as_ref()?.id()?;
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let switches = threads
            .flatten()
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("status")).ok())
            .filter_map(|status| {
                let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
                line.trim().parse::<u64>().ok()
            })
            .sum();
        Some((ticks / TICKS_PER_SECOND, switches))
    }

    fn proc_file(&self, name: &str) -> Option<String> {
        let pid = self.child.as_ref()?.id()?;
        std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok()
    }
}

/// `USER_HZ`, the same on every Linux that Rust runs on.
const TICKS_PER_SECOND: f64 = 100.0;
