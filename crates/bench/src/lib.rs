//! Measures a Punctual server over HTTP, as its users see it.
//!
//! Called by `punctual bench`. Each scenario runs against servers that it starts (the same binary
//! on a fresh directory, or several on a database that is created for it) or against a given one.
//! It prints a progress bar while it works, a table at the end, and with `--json` one line of JSON
//! last on stdout. It judges nothing: a figure means something only beside another of the same run.
//! Unknown figures are left out.
//!
//! Invariant: everything that the bench started or created is gone at the end, also after a signal.

#![allow(clippy::cast_precision_loss, reason = "figures are rounded far below the precision of a double")]

mod arguments;
mod backlog;
mod client;
mod database;
mod drain;
mod fairness;
mod handover;
mod held;
mod herd;
mod http_head;
mod idle;
mod idle_priority;
mod lateness;
mod lead;
mod machine;
mod micro_instant;
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

pub use crate::arguments::BenchArguments;
use crate::arguments::{BenchOptions, Scenario};
use crate::client::BenchClient;
use crate::report::BenchReport;
use crate::signals::EndSignals;
use crate::site::Site;

/// How long a given server may take to be ready, …
const GIVEN_READY_TIMEOUT: Duration = Duration::from_secs(4);
/// … and started servers, which listen already.
const STARTED_READY_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs a scenario and prints its report.
pub async fn run(arguments: BenchArguments) -> anyhow::Result<()> {
    arguments.check()?;
    let mut signals = EndSignals::listen()?;
    let mut site = Site::new(&arguments);
    let BenchArguments { scenario, options } = arguments;
    let measured = unless_ended(&mut signals, async {
        site.start().await?;
        measure(scenario, &options, &mut site).await
    });
    let measured = measured.await;
    let ended = site.end().await;
    // Figures must not be lost because a directory cannot be removed.
    measured?.print(options.json)?;
    ended
}

/// The report, or an error if a signal came first.
async fn unless_ended(
    signals: &mut EndSignals,
    measured: impl Future<Output = anyhow::Result<BenchReport>>,
) -> anyhow::Result<BenchReport> {
    tokio::select! {
        // A signal to the process group ends the server too; report the signal, not the dead
        // server.
        biased;
        name = signals.next() => bail!("ended by {name} before the measurement was complete"),
        measured = measured => measured,
    }
}

async fn measure(scenario: Scenario, options: &BenchOptions, site: &mut Site) -> anyhow::Result<BenchReport> {
    let client = BenchClient::new(site.servers())?;
    client.ready(if site.is_ours() { STARTED_READY_TIMEOUT } else { GIVEN_READY_TIMEOUT }).await?;
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

async fn perform(
    scenario: Scenario,
    client: &BenchClient,
    options: &BenchOptions,
    site: &mut Site,
) -> anyhow::Result<BenchReport> {
    match scenario {
        Scenario::Submit { tasks, single } => submit::run(client, options, tasks, single).await,
        Scenario::Drain { tasks, webhook: false } => drain::run(client, options, tasks).await,
        Scenario::Drain { tasks, webhook: true } => drain::run_webhooks(client, options, tasks).await,
        Scenario::Lateness { rate, seconds, webhook } => lateness::run(client, options, rate, seconds, webhook).await,
        Scenario::Herd { tasks, jitter, webhook } => herd::run(client, options, tasks, jitter, webhook).await,
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
