//! Measures a Punctual server over HTTP, as its users see it.
//!
//! Each scenario runs against a server of its own (a fresh data directory, the same
//! binary) or against one it is given, prints a progress bar while it works, a table at
//! the end, and with `--json` one line of JSON last on stdout. It judges nothing: a
//! figure says something only beside another of the same run.

#![allow(clippy::cast_precision_loss, reason = "figures are rounded far below the precision of a double")]

mod backlog;
mod client;
mod drain;
mod fairness;
mod herd;
mod idle;
mod lateness;
mod machine;
mod overload;
mod raw;
mod report;
mod server;
mod submit;
mod workers;

use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};

use crate::client::Client;
use crate::report::Report;
use crate::server::Server;

/// What to measure, and how.
#[derive(Args)]
pub struct Arguments {
    #[command(subcommand)]
    scenario: Scenario,
    #[command(flatten)]
    options: Options,
}

/// What all scenarios share.
#[derive(Args)]
pub(crate) struct Options {
    /// A running server to measure instead of one that is started for it.
    #[arg(long, global = true)]
    url: Option<String>,
    /// Where the started server keeps its data; a directory below it is made and removed [default: the system's].
    #[arg(long, global = true)]
    data: Option<std::path::PathBuf>,
    /// Print one line of JSON last on stdout.
    #[arg(long, global = true)]
    json: bool,
    /// Connections that submit, or pull workers.
    #[arg(long, global = true, default_value_t = 64)]
    connections: usize,
    /// Tasks a call submits, leases or settles.
    #[arg(long, global = true, default_value_t = 1_000)]
    batch: usize,
}

#[derive(Subcommand)]
enum Scenario {
    /// Acknowledged submissions a second.
    Submit {
        /// How many tasks.
        #[arg(long, default_value_t = 100_000)]
        tasks: usize,
        /// One task a call, instead of a batch a call.
        #[arg(long)]
        single: bool,
    },
    /// Tasks leased and settled a second, from a standing backlog.
    Drain {
        /// How many tasks.
        #[arg(long, default_value_t = 200_000)]
        tasks: usize,
        /// Push them to a sink in this process, instead of pull workers.
        #[arg(long)]
        webhook: bool,
    },
    /// How late tasks arrive at a steady rate.
    Lateness {
        /// Tasks a second.
        #[arg(long, default_value_t = 1_000)]
        rate: usize,
        /// For how long.
        #[arg(long, default_value_t = 60)]
        seconds: usize,
        /// Push them to a sink in this process, instead of pull workers.
        #[arg(long)]
        webhook: bool,
    },
    /// Many tasks due at one instant.
    Herd {
        /// How many tasks.
        #[arg(long, default_value_t = 100_000)]
        tasks: usize,
    },
    /// What waiting tasks cost: submissions and claims beside this many of them.
    Backlog {
        /// How many tasks wait.
        #[arg(long, default_value_t = 1_000_000)]
        waiting: usize,
        /// Tasks that are submitted and drained in each measurement.
        #[arg(long, default_value_t = 50_000)]
        probe: usize,
    },
    /// How late one tenant's tasks arrive alone, and beside another tenant's backlog.
    Fairness {
        /// The other tenant's backlog, all of it due.
        #[arg(long, default_value_t = 1_000_000)]
        backlog: usize,
        /// Tasks a second of the tenant that is watched.
        #[arg(long, default_value_t = 10)]
        rate: usize,
        /// For how long, in each case.
        #[arg(long, default_value_t = 20)]
        seconds: usize,
    },
    /// What is still accepted when far more is submitted than the server can take.
    Overload {
        /// For how long.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// How many connections flood for each one that reaches the peak.
        #[arg(long, default_value_t = 10)]
        times: usize,
    },
    /// What an idle server costs.
    Idle {
        /// For how long.
        #[arg(long, default_value_t = 10)]
        seconds: u64,
    },
}

/// Measures, and prints what was measured.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let options = &arguments.options;
    let server = match &options.url {
        Some(url) => Server::given(url),
        None => Server::start(options.data.as_deref()).await?,
    };
    let client = Client::new(&server.url)?;
    client.ready(Duration::from_secs(10)).await.context("the server does not get ready")?;
    let mut report = match arguments.scenario {
        Scenario::Submit { tasks, single } => submit::run(&client, options, tasks, single).await?,
        Scenario::Drain { tasks, webhook: false } => drain::run(&client, options, tasks).await?,
        Scenario::Drain { tasks, webhook: true } => drain::run_webhooks(&client, options, tasks).await?,
        Scenario::Lateness { rate, seconds, webhook } => {
            lateness::run(&client, options, rate, seconds, webhook).await?
        }
        Scenario::Herd { tasks } => herd::run(&client, options, tasks).await?,
        Scenario::Backlog { waiting, probe } => backlog::run(&client, options, &server, waiting, probe).await?,
        Scenario::Fairness { backlog, rate, seconds } => {
            fairness::run(&client, options, backlog, rate, seconds).await?
        }
        Scenario::Overload { seconds, times } => {
            overload::run(&client, options, &server, overload::Flood { seconds, times }).await?
        }
        Scenario::Idle { seconds } => idle::run(&server, seconds).await?,
    };
    report.server(&server);
    report.print(options.json)
}

impl Report {
    fn server(&mut self, server: &Server) {
        if let Some(megabytes) = server.rss_megabytes() {
            self.number("rss_mb", megabytes);
        }
    }
}
