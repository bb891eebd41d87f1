//! A real PgBouncer in front of a server.

use std::fs::File;
use std::process::{Child, Stdio};

use tempfile::TempDir;

use super::{Postgres, WITHIN, try_connect};
use crate::eventually::eventually;
use crate::shared::Port;

/// Where Debian installs it.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// A pooler that ends when it is dropped.
#[derive(Debug)]
pub struct PgBouncer {
    port: Port,
    process: Child,
    _directory: TempDir,
}

impl Postgres {
    /// Starts a PgBouncer in this `pool_mode`, with `pool_size` connections for each database.
    pub async fn pgbouncer(&self, pool_mode: &str, pool_size: usize) -> PgBouncer {
        let port = Port::reserve();
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        self.binaries.own(directory.path());
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = \
             {}\nunix_socket_dir =\nauth_type = any\npool_mode = {pool_mode}\ndefault_pool_size = {pool_size}\n\
             max_client_conn = 500\nquery_wait_timeout = 5\n",
            self.port(),
            port.number(),
        );
        let file = directory.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).expect("a file of a fresh directory can be written");
        self.binaries.own(&file);
        let log = File::create(directory.path().join("log")).expect("the log can be created");
        let mut command = self.binaries.as_user(PROGRAM);
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let pooler = PgBouncer { port, process, _directory: directory };
        let url = pooler.url("postgres");
        eventually("PgBouncer can be connected to", WITHIN, async || try_connect(&url).await.map(drop)).await;
        pooler
    }
}

impl PgBouncer {
    /// How to connect to a database through it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port.number())
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
