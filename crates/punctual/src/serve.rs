//! Builds a node and runs it. The only module that names adapters.
//!
//! `parts` opens the adapters, `running` starts the roles on them and stops them in order, and each
//! other file starts the loops of one role. If a loop ends by itself, the process ends too: a node
//! that silently lacks its reaper is worse than one that restarts.

mod api;
mod cluster;
mod groups;
mod inbox;
mod leader;
mod open_files;
mod parts;
mod running;
mod scheduler;
pub(crate) mod store;
mod tally;
mod tokens;
mod worker;

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use punctual_api::server::tls::TlsIdentity;
use punctual_core::ids::NodeId;
use tokio::net::TcpListener;

use self::parts::NodeParts;
use self::running::{Listeners, Running};
use crate::cli::StoreWrapper;
use crate::config::Config;

/// Serves until a signal arrives, and warns of `risks` first. Fails with one clear sentence if the
/// node cannot start.
pub async fn run(config: Config, risks: &[String], wrap_store: StoreWrapper) -> anyhow::Result<()> {
    crate::cli::install_tls();
    let signal = crate::shutdown::on_signals()?;
    open_files::raise_limit();
    open_files::check()?;
    let tls = config.tls.clone().map(TlsIdentity::load).transpose()?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let main = bind(config.listen).await?;
    let admin = match config.admin_listen {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    // With port 0 the system has chosen one.
    let admin_listen = admin.as_ref().map(TcpListener::local_addr).transpose()?;
    let config = Config { listen: main.local_addr()?, admin_listen, ..config };
    let (address, store) = (config.listen, config.store_name());
    let node = NodeId::random();
    let parts = Arc::new(NodeParts::open(config, node, wrap_store).await?);
    let running = Running::start(parts, Listeners { main, admin, tls }).await?;
    // If stdout is closed, no program waits for these lines. The last one says that all is ready.
    let mut stdout = std::io::stdout();
    if let Some(admin) = admin_listen {
        drop(writeln!(stdout, "operators: listening on {scheme}://{admin}"));
    }
    drop(writeln!(stdout, "listening on {scheme}://{address}"));
    tracing::info!(node.id = %node, address = %address, store = %store, "serving");
    for risk in risks {
        tracing::warn!("{risk}");
    }
    running.run_until(signal).await
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}
