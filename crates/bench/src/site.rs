//! The servers that are measured: one that is given, or several that are started for the
//! measurement on a store of their own.
//!
//! A site begins with nothing started. `lib.rs` ends it however the measurement went; then
//! processes, directories and database are gone.

use std::path::PathBuf;

use anyhow::Context;
use tokio::task::JoinSet;

use crate::arguments::{BenchArguments, StoreOption};
use crate::database::{BenchDatabase, OpenTransaction};
use crate::process::{ServeOptions, ServerProcess};
use crate::server::BenchServer;

/// The servers of one measurement.
pub struct Site {
    /// None if the server is given.
    ours: Option<StartedServers>,
    servers: Vec<BenchServer>,
}

/// What is started, and how.
struct StartedServers {
    count: usize,
    data: Option<PathBuf>,
    settings: &'static [(&'static str, &'static str)],
    database: Option<BenchDatabase>,
    /// Each at the index of its server.
    processes: Vec<ServerProcess>,
}

/// What is known of the store of started servers.
pub struct StoreFacts<'a> {
    /// Its kind.
    pub kind: &'static str,
    /// Its version, if it is a server.
    pub version: Option<&'a str>,
}

impl Site {
    /// The site that the arguments ask for, with nothing started yet.
    pub fn new(arguments: &BenchArguments) -> Self {
        let options = &arguments.options;
        if let Some(url) = &options.url {
            let server = BenchServer::given(url.clone()).with_key(options.key.clone());
            return Self { ours: None, servers: vec![server] };
        }
        let database = match &options.store {
            Some(StoreOption::Postgres(url)) => Some(BenchDatabase::new(url.clone())),
            Some(StoreOption::Sqlite) | None => None,
        };
        let (count, data) = (arguments.nodes(), options.data.clone());
        let ours =
            StartedServers { count, data, settings: arguments.scenario.settings(), database, processes: Vec::new() };
        Self { ours: Some(ours), servers: Vec::new() }
    }

    /// Starts the servers, if they are ours, and waits until they listen.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        let Some(ours) = &mut self.ours else { return Ok(()) };
        if let Some(database) = &mut ours.database {
            database.create().await?;
        }
        let serve = ours.serve();
        for _ in 0..ours.count {
            ours.processes.push(ServerProcess::spawn(&serve)?);
        }
        for process in &mut ours.processes {
            self.servers.push(process.wait_until_listening().await?);
        }
        Ok(())
    }

    /// Whether the servers were started for the measurement.
    pub fn is_ours(&self) -> bool {
        self.ours.is_some()
    }

    /// The servers.
    pub fn servers(&self) -> &[BenchServer] {
        &self.servers
    }

    /// The server of the `number`th connection.
    pub fn server(&self, number: usize) -> &BenchServer {
        &self.servers[number % self.servers.len()]
    }

    /// The store, if the servers were started on one.
    pub fn store(&self) -> Option<StoreFacts<'_>> {
        let facts = match &self.ours.as_ref()?.database {
            Some(database) => StoreFacts { kind: "postgres", version: database.version() },
            None => StoreFacts { kind: "sqlite", version: None },
        };
        Some(facts)
    }

    /// The memory of all live servers together, if they are ours.
    pub fn rss_megabytes(&self) -> Option<f64> {
        self.servers.iter().filter_map(BenchServer::rss_megabytes).reduce(|one, other| one + other)
    }

    /// The servers' processor time in seconds and their wake-ups, if they are ours.
    pub fn processor(&self) -> Option<(f64, u64)> {
        let each = self.servers.iter().filter_map(BenchServer::processor);
        each.reduce(|(seconds, woken), (more, again)| (seconds + more, woken + again))
    }

    /// Begins a transaction on PostgreSQL, and keeps it open.
    pub async fn hold(&self) -> anyhow::Result<OpenTransaction> {
        let database = self.ours.as_ref().and_then(|ours| ours.database.as_ref());
        database.context("a transaction is held open on a PostgreSQL only")?.hold().await
    }

    /// Runs the cleanup that loading many tasks has left PostgreSQL to do, so that it is not
    /// measured.
    pub async fn clean_up(&self) -> anyhow::Result<()> {
        match self.ours.as_ref().and_then(|ours| ours.database.as_ref()) {
            Some(database) => database.clean_up().await,
            None => Ok(()),
        }
    }

    /// Stops a server by SIGTERM, and waits for its end.
    pub async fn stop(&mut self, index: usize) -> anyhow::Result<()> {
        self.process(index)?.stop().await
    }

    /// Kills a server.
    pub async fn kill(&mut self, index: usize) -> anyhow::Result<()> {
        self.process(index)?.kill().await
    }

    /// Starts a server in place of one that has ended, and waits until it listens.
    pub async fn start_again(&mut self, index: usize) -> anyhow::Result<()> {
        let ours = self.ours.as_ref().context("only a server of ours is started")?;
        let process = ServerProcess::spawn(&ours.serve())?;
        let before = std::mem::replace(self.process(index)?, process);
        before.end().await?;
        self.servers[index] = self.process(index)?.wait_until_listening().await?;
        Ok(())
    }

    fn process(&mut self, index: usize) -> anyhow::Result<&mut ServerProcess> {
        let ours = self.ours.as_mut().context("only a server of ours is ended")?;
        Ok(&mut ours.processes[index])
    }

    /// Ends everything that was started. A failure does not keep the rest from ending.
    pub async fn end(self) -> anyhow::Result<()> {
        let Some(ours) = self.ours else { return Ok(()) };
        let mut ended = Ok(());
        let processes: JoinSet<anyhow::Result<()>> = ours.processes.into_iter().map(ServerProcess::end).collect();
        for process in processes.join_all().await {
            ended = ended.and(process);
        }
        if let Some(database) = ours.database {
            ended = ended.and(database.remove().await);
        }
        ended
    }
}

impl StartedServers {
    fn serve(&self) -> ServeOptions {
        let store = self.database.as_ref().map_or_else(|| "sqlite".to_owned(), |database| database.url().to_string());
        ServeOptions { data: self.data.clone(), store, settings: self.settings }
    }
}

#[cfg(test)]
impl Site {
    /// A server at this address, with the memory of this process.
    pub fn of_this_process(url: url::Url) -> Self {
        let ours = StartedServers { count: 1, data: None, settings: &[], database: None, processes: Vec::new() };
        Self { ours: Some(ours), servers: vec![BenchServer::started(url, std::process::id())] }
    }

    /// A server that is given.
    pub fn given(url: url::Url) -> Self {
        Self { ours: None, servers: vec![BenchServer::given(url)] }
    }
}
