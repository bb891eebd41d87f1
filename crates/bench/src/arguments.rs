//! What can be asked for on the command line. Whatever makes no sense is refused before anything is started.

mod scenario;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use punctual_core::task::limits;
use reqwest::Url;

pub(crate) use self::scenario::{How, Scenario};

/// Connections where nothing else is given and many callers at once are what is measured.
const MANY: usize = 64;
/// Connections and workers elsewhere: each submits, leases and settles whole batches, so few keep a server busy.
const FEW: usize = 4;

/// More than any machine can keep up with; sums and products of them do not overflow.
const MOST_CONNECTIONS: usize = 10_000;
const MOST_NODES: usize = 32;

/// What to measure, and how.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub(crate) scenario: Scenario,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// What all scenarios share.
#[derive(Args)]
pub(crate) struct Options {
    /// A running server to measure instead of one that is started for it.
    #[arg(long, global = true, value_parser = server_url)]
    pub(crate) url: Option<Url>,
    /// Where the started servers keep tasks: sqlite or postgres://…, on which a database is made and dropped
    /// [default: sqlite].
    #[arg(long, global = true, value_parser = store)]
    pub(crate) store: Option<Store>,
    /// How many servers are started; several need a PostgreSQL to share [default: 3 for handover, 1 elsewhere].
    #[arg(long, global = true, value_parser = up_to(MOST_NODES))]
    nodes: Option<usize>,
    /// Where the started server keeps its data; a directory below it is made and removed [default: the system's].
    #[arg(long, global = true)]
    pub(crate) data: Option<PathBuf>,
    /// Hold a transaction open on the PostgreSQL during drain or herd.
    #[arg(long, global = true)]
    pub(crate) hold_open: bool,
    /// Print one line of JSON last on stdout.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Connections that submit, and pull workers [default: 64 for submit, overload and the workers of lateness, 4
    /// elsewhere].
    #[arg(long, global = true, value_parser = up_to(MOST_CONNECTIONS))]
    connections: Option<usize>,
    /// Tasks a call submits, leases or settles; a call leases and settles at most 1,000.
    #[arg(long, global = true, default_value_t = 1_000, value_parser = up_to(limits::BATCH))]
    pub(crate) batch: usize,
}

/// Where started servers keep tasks.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Store {
    /// Each in its directory.
    Sqlite,
    /// All in a database of this server.
    Postgres(Url),
}

impl Arguments {
    /// How many servers are started.
    pub(crate) fn nodes(&self) -> usize {
        self.options.nodes.unwrap_or(if self.scenario.hands_over() { 3 } else { 1 })
    }

    /// Refuses what each argument allows by itself, but the scenario does not.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let (batch, most) = (self.options.batch, limits::LEASE_BATCH);
        if self.scenario.leases() && batch > most {
            bail!("a call leases and settles at most {most} tasks: this scenario cannot work with --batch {batch}");
        }
        match (&self.scenario, &self.options.url) {
            (Scenario::Idle { .. }, Some(_)) => bail!("idle measures a server that it starts itself: leave out --url"),
            (Scenario::Overload { .. }, Some(url)) if url.scheme() != "http" => {
                bail!("overload speaks plain HTTP only: give it an http:// address")
            }
            _ => {}
        }
        self.check_store()
    }

    fn check_store(&self) -> anyhow::Result<()> {
        let Options { url, store, nodes, hold_open, .. } = &self.options;
        if url.is_some() && (store.is_some() || nodes.is_some()) {
            bail!("--url names a server that runs already: leave out --store and --nodes, or leave out --url");
        }
        if *hold_open && !matches!(self.scenario, Scenario::Drain { .. } | Scenario::Herd { .. }) {
            bail!("--hold-open goes with drain and herd only");
        }
        let is_postgres = matches!(store, Some(Store::Postgres(_)));
        if !is_postgres && (*hold_open || self.scenario.needs_postgres()) {
            bail!("this is measured on PostgreSQL only: give it a server with --store postgres://…");
        }
        if !is_postgres && self.nodes() > 1 {
            bail!("SQLite's file belongs to one server: several share a PostgreSQL, given with --store postgres://…");
        }
        if self.scenario.hands_over() && self.nodes() < 2 {
            bail!("nobody takes over from a single server: give handover --nodes 2 or more");
        }
        Ok(())
    }
}

impl Options {
    /// Connections or workers, for a scenario that is about many callers at once.
    pub(crate) fn many_connections(&self) -> usize {
        self.connections.unwrap_or(MANY)
    }

    /// Connections or workers, where few are enough.
    pub(crate) fn few_connections(&self) -> usize {
        self.connections.unwrap_or(FEW)
    }
}

/// A whole number from 1 to `most`.
fn up_to(most: usize) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse().ok().filter(|number| (1..=most).contains(number));
        number.ok_or_else(|| format!("must be a whole number from 1 to {most}"))
    }
}

/// Where a server can be.
fn server_url(text: &str) -> Result<Url, String> {
    let plain = |url: &Url| {
        matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none() && url.fragment().is_none()
    };
    let url = Url::parse(text).ok().filter(plain);
    url.ok_or_else(|| "must be the address of a server, such as http://127.0.0.1:7400".to_owned())
}

/// What a store can be.
fn store(text: &str) -> Result<Store, String> {
    if text == "sqlite" {
        return Ok(Store::Sqlite);
    }
    let postgres = |url: &Url| matches!(url.scheme(), "postgres" | "postgresql") && url.has_host();
    let url = Url::parse(text).ok().filter(postgres).map(Store::Postgres);
    url.ok_or_else(|| "must be sqlite, or a PostgreSQL such as postgres://user:password@127.0.0.1/postgres".to_owned())
}
