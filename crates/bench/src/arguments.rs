//! The command line of `punctual bench`. Arguments that make no sense are refused before anything
//! is started.

mod scenario;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use punctual_core::task::limits;
use url::Url;

pub(crate) use self::scenario::{ExitMode, Scenario};

/// The default of connections where many callers at once are measured.
const MANY_CONNECTIONS: usize = 64;
/// The default elsewhere: each connection or worker handles whole batches, so few keep a server
/// busy.
const FEW_CONNECTIONS: usize = 4;

/// More than any machine can serve; their sums and products do not overflow.
const CONNECTIONS_MAX: usize = 10_000;
const NODES_MAX: usize = 32;

/// What to measure, and how.
#[derive(Args)]
pub struct BenchArguments {
    #[command(subcommand)]
    pub(crate) scenario: Scenario,
    #[command(flatten)]
    pub(crate) options: BenchOptions,
}

/// What all scenarios share.
#[derive(Args)]
pub(crate) struct BenchOptions {
    /// Measure this running server instead of starting one.
    #[arg(long, global = true, value_parser = server_url)]
    pub(crate) url: Option<Url>,
    /// The file with the API key to show to that server; an admin key for fairness, which acts for
    /// several tenants.
    #[arg(long = "key-file", global = true, value_name = "FILE", env = "PUNCTUAL_API_KEY_FILE", value_parser = key_in)]
    pub(crate) key: Option<Arc<str>>,
    /// The store of the started servers: sqlite, or postgres://… on which a database is created and
    /// dropped [default: sqlite].
    #[arg(long, global = true, value_parser = store)]
    pub(crate) store: Option<StoreOption>,
    /// Start this many servers; several need PostgreSQL [default: 3 for handover, 1 elsewhere].
    #[arg(long, global = true, value_parser = up_to(NODES_MAX))]
    nodes: Option<usize>,
    /// Create the data directory of a started server below this one [default: the system's
    /// temporary directory].
    #[arg(long, global = true)]
    pub(crate) data: Option<PathBuf>,
    /// Hold a transaction open on PostgreSQL during drain or herd.
    #[arg(long, global = true)]
    pub(crate) hold_open: bool,
    /// Print one line of JSON last on stdout.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Connections that submit, and pull workers [default: 64 for submit, overload and the workers
    /// of lateness, 4 elsewhere].
    #[arg(long, global = true, value_parser = up_to(CONNECTIONS_MAX))]
    connections: Option<usize>,
    /// Tasks in one call; a call leases and settles at most 1,000.
    #[arg(long, global = true, default_value_t = 1_000, value_parser = up_to(limits::BATCH))]
    pub(crate) batch: usize,
}

/// The store of started servers.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum StoreOption {
    /// SQLite, in each server's directory.
    Sqlite,
    /// A database on this PostgreSQL server.
    Postgres(Url),
}

impl BenchArguments {
    /// How many servers are started.
    pub(crate) fn nodes(&self) -> usize {
        self.options.nodes.unwrap_or(if self.scenario.hands_over() { 3 } else { 1 })
    }

    /// Refuses combinations that the scenario does not allow.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let (batch, most) = (self.options.batch, limits::LEASE_BATCH);
        if self.scenario.leases() && batch > most {
            bail!("a call leases and settles at most {most} tasks: this scenario cannot work with --batch {batch}");
        }
        if matches!(self.scenario, Scenario::Idle { .. }) && self.options.url.is_some() {
            bail!("idle measures a server that it starts itself: leave out --url");
        }
        self.check_store()
    }

    fn check_store(&self) -> anyhow::Result<()> {
        let BenchOptions { url, store, nodes, hold_open, .. } = &self.options;
        if url.is_some() && (store.is_some() || nodes.is_some()) {
            bail!("--url names a server that runs already: leave out --store and --nodes, or leave out --url");
        }
        if *hold_open && !matches!(self.scenario, Scenario::Drain { .. } | Scenario::Herd { .. }) {
            bail!("--hold-open goes with drain and herd only");
        }
        let is_postgres = matches!(store, Some(StoreOption::Postgres(_)));
        if !is_postgres && (*hold_open || self.scenario.needs_postgres()) {
            bail!("this is measured on PostgreSQL only: name a server with --store postgres://…");
        }
        if !is_postgres && self.nodes() > 1 {
            bail!("a SQLite file belongs to one server: several servers need --store postgres://…");
        }
        if self.scenario.hands_over() && self.nodes() < 2 {
            bail!("no node takes over from a single server: handover needs --nodes 2 or more");
        }
        Ok(())
    }
}

impl BenchOptions {
    /// Connections or workers, for a scenario that is about many callers at once.
    pub(crate) fn many_connections(&self) -> usize {
        self.connections.unwrap_or(MANY_CONNECTIONS)
    }

    /// Connections or workers, where few are enough.
    pub(crate) fn few_connections(&self) -> usize {
        self.connections.unwrap_or(FEW_CONNECTIONS)
    }
}

/// The API key in a file. It is read here, so that it is never on the command line.
fn key_in(path: &str) -> Result<Arc<str>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read it: {error}"))?;
    let key = text.trim();
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("must hold an API key and nothing else".to_owned());
    }
    Ok(key.into())
}

/// A whole number from 1 to `most`.
fn up_to(most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| format!("must be a whole number from 1 to {most}"))
    }
}

/// The address of a server. The client speaks plain HTTP only.
fn server_url(text: &str) -> Result<Url, String> {
    let plain = |url: &Url| url.has_host() && url.query().is_none() && url.fragment().is_none();
    match Url::parse(text) {
        Ok(url) if url.scheme() == "http" && plain(&url) => Ok(url),
        Ok(url) if url.scheme() == "https" => {
            Err("the benchmark speaks plain HTTP only: for TLS put a proxy on this side".to_owned())
        }
        _ => Err("must be the address of a server, such as http://127.0.0.1:7400".to_owned()),
    }
}

/// A store.
fn store(text: &str) -> Result<StoreOption, String> {
    if text == "sqlite" {
        return Ok(StoreOption::Sqlite);
    }
    let postgres = |url: &Url| matches!(url.scheme(), "postgres" | "postgresql") && url.has_host();
    let url = Url::parse(text).ok().filter(postgres).map(StoreOption::Postgres);
    url.ok_or_else(|| "must be sqlite, or a PostgreSQL such as postgres://user:password@127.0.0.1/postgres".to_owned())
}
