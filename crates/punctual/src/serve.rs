//! Puts the parts together and runs them: the only place that names adapters.
//!
//! The end has an order: nobody claims any more, then the partitions are given up, then what runs
//! is drained or given back while workers can still settle over HTTP, then the interface closes,
//! then the store. A part that ends by itself ends the process: a scheduler that quietly lacks its
//! reaper is worse than one that restarts.

mod cluster;
mod inbox;
mod leading;
mod parts;
mod running;
mod store;
mod tally;

use std::io::Write;

use anyhow::Context;
use punctual_core::ids::NodeId;
use tokio::net::TcpListener;

use self::parts::Parts;
use self::running::Running;
use crate::cli::Around;
use crate::config::Config;

/// Serves until a signal comes; fails with one clear sentence when it cannot start.
pub async fn run(config: Config, around: Around) -> anyhow::Result<()> {
    // Fails only if a provider is installed already, which is as good.
    drop(rustls::crypto::ring::default_provider().install_default());
    let signal = crate::shutdown::on_signals()?;
    let listener =
        TcpListener::bind(config.listen).await.with_context(|| format!("cannot listen on {}", config.listen))?;
    let address = listener.local_addr()?;
    let node = NodeId::random();
    let parts = Parts::open(&config, node, around).await?;
    let running = Running::start(&config, parts, listener).await?;
    // Whoever closed our stdout does not want to know.
    drop(writeln!(std::io::stdout(), "listening on http://{address}"));
    tracing::info!(node = %node, address = %address, store = %config.store_name(), "serving");
    running.until(signal).await
}
