//! Measures a Punctual server over HTTP, as its users see it.
//!
//! Each scenario runs against a server of its own (a fresh data directory, the same
//! binary) or against one it is given, prints a progress bar while it works, a table at
//! the end, and with `--json` one line of JSON last on stdout. It judges nothing: a
//! figure says something only beside another of the same run. What is not known is left
//! out. A server that was started is gone at the end, also after a signal.

#![allow(clippy::cast_precision_loss, reason = "figures are rounded far below the precision of a double")]

mod arguments;
mod backlog;
mod client;
mod drain;
mod fairness;
mod herd;
mod idle;
mod lateness;
mod machine;
mod overload;
mod process;
mod raw;
mod report;
mod server;
mod signals;
mod submit;
mod workers;

use std::time::Duration;

use anyhow::bail;

pub use crate::arguments::Arguments;
use crate::arguments::{Options, Scenario};
use crate::client::Client;
use crate::process::Process;
use crate::report::Report;
use crate::server::Server;
use crate::signals::Signals;

/// How long a server that is given may take to answer that it is ready, …
const GIVEN_READY_WITHIN: Duration = Duration::from_secs(4);
/// … and one that was started, which listens already.
const STARTED_READY_WITHIN: Duration = Duration::from_secs(10);

/// Measures, and prints what was measured.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    arguments.check()?;
    let Arguments { scenario, options } = arguments;
    let mut signals = Signals::listen()?;
    if let Some(url) = &options.url {
        let server = Server::given(url.clone());
        return unless_ended(&mut signals, measure(scenario, &options, &server)).await?.print(options.json);
    }
    let mut process = Process::spawn(options.data.as_deref())?;
    let measured = unless_ended(&mut signals, async {
        let server = process.listens().await?;
        measure(scenario, &options, &server).await
    });
    let measured = measured.await;
    let ended = process.end().await;
    // Figures that took long to make are not lost because a directory cannot be removed.
    measured?.print(options.json)?;
    ended
}

/// What was measured, or which signal came before.
async fn unless_ended(
    signals: &mut Signals,
    measured: impl Future<Output = anyhow::Result<Report>>,
) -> anyhow::Result<Report> {
    tokio::select! {
        // A signal to the whole group ends the server too; that is not what to complain about then.
        biased;
        name = signals.next() => bail!("ended by {name} before all was measured"),
        measured = measured => measured,
    }
}

async fn measure(scenario: Scenario, options: &Options, server: &Server) -> anyhow::Result<Report> {
    let client = Client::new(server.url())?;
    client.ready(if server.is_ours() { STARTED_READY_WITHIN } else { GIVEN_READY_WITHIN }).await?;
    let mut report = match scenario {
        Scenario::Submit { tasks, single } => submit::run(&client, options, tasks, single).await?,
        Scenario::Drain { tasks, webhook: false } => drain::run(&client, options, tasks).await?,
        Scenario::Drain { tasks, webhook: true } => drain::run_webhooks(&client, options, tasks).await?,
        Scenario::Lateness { rate, seconds, webhook } => {
            lateness::run(&client, options, rate, seconds, webhook).await?
        }
        Scenario::Herd { tasks } => herd::run(&client, options, tasks).await?,
        Scenario::Backlog { waiting, probe } => backlog::run(&client, options, server, waiting, probe).await?,
        Scenario::Fairness { backlog, rate, seconds } => {
            fairness::run(&client, options, backlog, rate, seconds).await?
        }
        Scenario::Overload { seconds, times } => {
            overload::run(&client, options, server, overload::Flood { seconds: seconds as u64, times }).await?
        }
        Scenario::Idle { seconds } => idle::run(server, seconds as u64).await?,
    };
    report.server(server);
    report.refused(client.refused());
    Ok(report)
}
