//! A node while it runs: which loops its roles need, and how it shuts down.

use std::sync::Arc;

use anyhow::bail;
use punctual_api::Operations;
use punctual_api::server::tls::TlsIdentity;
use punctual_scheduler::webhook_path::WebhookPath;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::groups::Groups;
use super::parts::NodeParts;
use super::{api, cluster, inbox, leader, scheduler, tally, worker};
use crate::config::{BrokerChoice, Role};

/// Where a node listens, and as whom.
pub struct Listeners {
    /// For clients, and for operators if they have none of their own.
    pub main: TcpListener,
    /// For operators.
    pub admin: Option<TcpListener>,
    /// The TLS identity of both; none if they speak without TLS.
    pub tls: Option<Arc<TlsIdentity>>,
}

/// A running node.
pub struct Running {
    parts: Arc<NodeParts>,
    operations: Arc<Operations>,
    groups: Groups,
}

impl Running {
    /// Starts the loops of every role that the configuration names.
    pub async fn start(parts: Arc<NodeParts>, listeners: Listeners) -> anyhow::Result<Self> {
        let has = |role| parts.config.roles.contains(&role);
        let (is_api, is_scheduler) = (has(Role::Api), has(Role::Scheduler));
        let operations = Arc::new(api::operations(&parts)?);
        let address = listeners.main.local_addr()?;
        let mut groups = Groups::default();

        // The dispatcher's first pass needs the partitions and the breakers.
        if is_scheduler {
            scheduler::start_partition_owner(&mut groups, &parts).await?;
        }
        if parts.config.breakers.enabled {
            scheduler::start_breaker_watch(&mut groups, &parts).await;
        }
        let BrokerChoice::Embedded = parts.config.broker;
        let worker = has(Role::Worker).then(|| worker::worker(&parts));
        let webhooks = worker.as_ref().map_or(WebhookPath::None, |worker| WebhookPath::Worker(worker.handle()));
        // Pull workers poll the dispatcher of the node that they call.
        let polls = (is_api || is_scheduler).then(|| scheduler::start_dispatcher(&mut groups, &parts, webhooks));
        if is_api || is_scheduler {
            inbox::start(&mut groups, &parts);
        }
        cluster::start_listener(&mut groups, &parts);
        // The first submission needs the settings of its queue.
        scheduler::start_queue_watch(&mut groups, &parts).await;

        if let Some(worker) = worker {
            worker::start(&mut groups, worker);
        }
        match polls {
            Some(polls) if is_api => api::start(&mut groups, &parts, &operations, polls, listeners),
            _ => api::start_operations(&mut groups, &parts, &operations, listeners),
        }
        tally::start(&mut groups, &parts);

        cluster::start_resolver(&mut groups, &parts);
        cluster::start_membership(&mut groups, &parts, address);
        cluster::start_departure_watch(&mut groups, &parts);
        if has(Role::Leader) {
            leader::start(&mut groups, &parts);
        }
        Ok(Self { parts, operations, groups })
    }

    /// Runs until the signal, or until a loop ends by itself. Then it shuts down: readiness turns
    /// false, the groups stop in their order, and the store closes last.
    pub async fn run_until(mut self, signal: CancellationToken) -> anyhow::Result<()> {
        let ended = tokio::select! {
            () = signal.cancelled() => None,
            name = self.groups.first_end() => Some(name),
        };
        self.operations.drain();
        self.parts.finish_watch.close();
        self.groups.stop().await;
        if let Err(error) = self.parts.store.close().await {
            tracing::warn!(error = %error, "cannot close the store cleanly; it recovers when it is opened");
        }
        match ended {
            Some(name) => bail!("the {name} ended by itself, so the process ended too; the log shows why"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
