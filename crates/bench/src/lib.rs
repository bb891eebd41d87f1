//! Measures a Punctual server over HTTP, as its users see it.
//!
//! Each scenario runs against servers of its own (the same binary on a fresh directory, or
//! several on a database that is made for it) or against one it is given, prints a progress bar
//! while it works, a table at the end, and with `--json` one line of JSON last on stdout. It
//! judges nothing: a figure says something only beside another of the same run. What is not
//! known is left out. What was started or made is gone at the end, also after a signal.

#![allow(clippy::cast_precision_loss, reason = "figures are rounded far below the precision of a double")]

mod arguments;
mod backlog;
mod client;
mod courtesy;
mod database;
mod drain;
mod fairness;
mod handover;
mod held;
mod herd;
mod idle;
mod lateness;
mod machine;
mod moment;
mod overload;
mod process;
mod quiet;
mod raw;
mod report;
mod server;
mod signals;
mod sink;
mod site;
mod stamped;
mod submit;
mod workers;

use std::time::Duration;

use anyhow::bail;

pub use crate::arguments::Arguments;
use crate::arguments::{Options, Scenario};
use crate::client::Client;
use crate::report::Report;
use crate::signals::Signals;
use crate::site::Site;

/// How long a server that is given may take to answer that it is ready, …
const GIVEN_READY_WITHIN: Duration = Duration::from_secs(4);
/// … and those that were started, which listen already.
const STARTED_READY_WITHIN: Duration = Duration::from_secs(10);

/// Measures, and prints what was measured.
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    arguments.check()?;
    let mut signals = Signals::listen()?;
    let mut site = Site::new(&arguments);
    let Arguments { scenario, options } = arguments;
    let measured = unless_ended(&mut signals, async {
        site.start().await?;
        measure(scenario, &options, &mut site).await
    });
    let measured = measured.await;
    let ended = site.end().await;
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

async fn measure(scenario: Scenario, options: &Options, site: &mut Site) -> anyhow::Result<Report> {
    let client = Client::new(site.servers().iter().map(|server| server.url().to_owned()).collect())?;
    client.ready(if site.is_ours() { STARTED_READY_WITHIN } else { GIVEN_READY_WITHIN }).await?;
    let held = if options.hold_open { Some(site.hold().await?) } else { None };
    let mut report = perform(scenario, &client, options, site).await?;
    if let Some(held) = held {
        held.release().await?;
        report.count("held_open", 1);
    }
    report.site(site);
    report.refused(client.refused());
    Ok(report)
}

async fn perform(scenario: Scenario, client: &Client, options: &Options, site: &mut Site) -> anyhow::Result<Report> {
    match scenario {
        Scenario::Submit { tasks, single } => submit::run(client, options, tasks, single).await,
        Scenario::Drain { tasks, webhook: false } => drain::run(client, options, tasks).await,
        Scenario::Drain { tasks, webhook: true } => drain::run_webhooks(client, options, tasks).await,
        Scenario::Lateness { rate, seconds, webhook } => lateness::run(client, options, rate, seconds, webhook).await,
        Scenario::Herd { tasks, jitter } => herd::run(client, options, tasks, jitter).await,
        Scenario::Backlog { waiting, probe } => backlog::run(client, options, site, waiting, probe).await,
        Scenario::Fairness { backlog, rate, seconds, rounds, webhook } => {
            fairness::run(client, options, site, fairness::Fairness { backlog, rate, seconds, rounds, webhook }).await
        }
        Scenario::Overload { seconds, times } => {
            overload::run(client, options, site, overload::Flood { seconds: seconds as u64, times }).await
        }
        Scenario::Idle { seconds } => idle::run(site, seconds as u64).await,
        Scenario::Handover { how, rate, seconds } => {
            handover::run(client, options, site, handover::Handover { how, rate, seconds }).await
        }
        Scenario::Held { tasks, seconds } => held::run(client, options, site, tasks, seconds).await,
    }
}
