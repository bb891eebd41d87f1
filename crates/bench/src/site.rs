//! What is measured: a server that is given, or servers that were started for it on a store of their own.
//!
//! A site begins with nothing; whoever makes one ends it, however the measurement went, and then
//! processes, directories and database are gone.

use std::path::PathBuf;

use anyhow::Context;
use tokio::task::JoinSet;

use crate::arguments::{Arguments, Store};
use crate::database::{Database, Held};
use crate::process::{Process, Serve};
use crate::server::Server;

/// See the module.
pub struct Site {
    /// None where the server is given.
    ours: Option<Ours>,
    servers: Vec<Server>,
}

/// What was started, and how.
struct Ours {
    count: usize,
    data: Option<PathBuf>,
    settings: &'static [(&'static str, &'static str)],
    database: Option<Database>,
    /// Each in the place of its server.
    processes: Vec<Process>,
}

/// What is known of a store that the servers were started on.
pub struct StoreTold<'a> {
    /// What kind it is.
    pub kind: &'static str,
    /// Its version, where it is a server.
    pub version: Option<&'a str>,
}

impl Site {
    /// What the arguments ask for, with nothing started yet.
    pub fn new(arguments: &Arguments) -> Self {
        let options = &arguments.options;
        if let Some(url) = &options.url {
            return Self { ours: None, servers: vec![Server::given(url.clone())] };
        }
        let database = match &options.store {
            Some(Store::Postgres(url)) => Some(Database::new(url.clone())),
            Some(Store::Sqlite) | None => None,
        };
        let (count, data) = (arguments.nodes(), options.data.clone());
        let ours = Ours { count, data, settings: arguments.scenario.settings(), database, processes: Vec::new() };
        Self { ours: Some(ours), servers: Vec::new() }
    }

    /// Starts what is to be started, and waits until it listens.
    pub async fn start(&mut self) -> anyhow::Result<()> {
        let Some(ours) = &mut self.ours else { return Ok(()) };
        if let Some(database) = &mut ours.database {
            database.make().await?;
        }
        let serve = ours.serve();
        for _ in 0..ours.count {
            ours.processes.push(Process::spawn(&serve)?);
        }
        for process in &mut ours.processes {
            self.servers.push(process.listens().await?);
        }
        Ok(())
    }

    /// Whether the servers were started for the measurement.
    pub fn is_ours(&self) -> bool {
        self.ours.is_some()
    }

    /// The servers.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The server that whoever is the `number`th to connect talks to.
    pub fn server(&self, number: usize) -> &Server {
        &self.servers[number % self.servers.len()]
    }

    /// The store, if the servers were started on one.
    pub fn store(&self) -> Option<StoreTold<'_>> {
        let told = match &self.ours.as_ref()?.database {
            Some(database) => StoreTold { kind: "postgres", version: database.version() },
            None => StoreTold { kind: "sqlite", version: None },
        };
        Some(told)
    }

    /// Memory that the servers which are alive occupy together, if they are ours.
    pub fn rss_megabytes(&self) -> Option<f64> {
        self.servers.iter().filter_map(Server::rss_megabytes).reduce(|one, other| one + other)
    }

    /// Seconds of processor time the servers have used, and how often they were woken, if they are ours.
    pub fn processor(&self) -> Option<(f64, u64)> {
        let each = self.servers.iter().filter_map(Server::processor);
        each.reduce(|(seconds, woken), (more, again)| (seconds + more, woken + again))
    }

    /// Begins a transaction on the PostgreSQL, and keeps it open.
    pub async fn hold(&self) -> anyhow::Result<Held> {
        let database = self.ours.as_ref().and_then(|ours| ours.database.as_ref());
        database.context("a transaction is held open on a PostgreSQL only")?.hold().await
    }

    /// Has a PostgreSQL do what loading many tasks has left for it to do later: whoever measures next would measure that.
    pub async fn settle(&self) -> anyhow::Result<()> {
        match self.ours.as_ref().and_then(|ours| ours.database.as_ref()) {
            Some(database) => database.settle().await,
            None => Ok(()),
        }
    }

    /// Ends a server by SIGTERM, and waits until it has ended by itself.
    pub async fn stop(&mut self, place: usize) -> anyhow::Result<()> {
        self.process(place)?.stop().await
    }

    /// Kills a server.
    pub async fn kill(&mut self, place: usize) -> anyhow::Result<()> {
        self.process(place)?.kill().await
    }

    /// Starts a server in the place of one that has ended, and waits until it listens.
    pub async fn start_again(&mut self, place: usize) -> anyhow::Result<()> {
        let ours = self.ours.as_ref().context("only a server of ours is started")?;
        let process = Process::spawn(&ours.serve())?;
        let before = std::mem::replace(self.process(place)?, process);
        before.end().await?;
        self.servers[place] = self.process(place)?.listens().await?;
        Ok(())
    }

    fn process(&mut self, place: usize) -> anyhow::Result<&mut Process> {
        let ours = self.ours.as_mut().context("only a server of ours is ended")?;
        Ok(&mut ours.processes[place])
    }

    /// Ends everything that was started. What cannot be ended does not keep the rest from it.
    pub async fn end(self) -> anyhow::Result<()> {
        let Some(ours) = self.ours else { return Ok(()) };
        let mut ended = Ok(());
        let processes: JoinSet<anyhow::Result<()>> = ours.processes.into_iter().map(Process::end).collect();
        for process in processes.join_all().await {
            ended = ended.and(process);
        }
        if let Some(database) = ours.database {
            ended = ended.and(database.remove().await);
        }
        ended
    }
}

impl Ours {
    fn serve(&self) -> Serve {
        let store = self.database.as_ref().map_or_else(|| "sqlite".to_owned(), |database| database.url().to_string());
        Serve { data: self.data.clone(), store, settings: self.settings }
    }
}

#[cfg(test)]
impl Site {
    /// A server at this address, with the memory of this process.
    pub fn of_this_process(url: reqwest::Url) -> Self {
        let ours = Ours { count: 1, data: None, settings: &[], database: None, processes: Vec::new() };
        Self { ours: Some(ours), servers: vec![Server::started(url, std::process::id())] }
    }

    /// A server that is given.
    pub fn given(url: reqwest::Url) -> Self {
        Self { ours: None, servers: vec![Server::given(url)] }
    }
}
