//! Elects one node to run the singletons.
//!
//! The leader holds a lease with a term and renews it well before it expires. A leader
//! that cannot renew stops by itself when two thirds of the lease are over, by its own
//! monotonic clock, so that it has stopped before anybody else can start. Two leaders
//! for a moment would still do no harm: every write of theirs is conditional on the
//! version of its row.

use std::sync::Arc;
use std::time::Duration;

use punctual_core::coordinator::{Coordinator, Lease};
use punctual_core::ids::NodeId;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The name of the leader's lease.
const LEASE: &str = "leader";

/// How leadership is held.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long a silent leader stays leader.
    pub lease: Duration,
    /// How often it renews.
    pub renewal: Duration,
}

/// Runs something while this node leads (see the module).
pub struct Elector {
    coordinator: Arc<dyn Coordinator>,
    node: NodeId,
    config: Config,
}

impl Elector {
    /// An elector for this node.
    pub fn new(coordinator: Arc<dyn Coordinator>, node: NodeId, config: Config) -> Self {
        Self { coordinator, node, config }
    }

    /// Runs `lead` whenever this node leads, until told to stop. `lead` must end soon after its token is cancelled.
    pub async fn run<F, Fut>(self, lead: F, shutdown: CancellationToken)
    where
        F: Fn(CancellationToken) -> Fut,
        Fut: Future<Output = ()>,
    {
        while !shutdown.is_cancelled() {
            let asked_at = Instant::now();
            match self.coordinator.acquire(LEASE, self.node, millis(self.config.lease)).await {
                Ok(Some(lease)) => self.lead(&lease, asked_at, &lead, &shutdown).await,
                Ok(None) => {}
                Err(error) => tracing::warn!(error = %error, "could not ask for the leadership"),
            }
            let pause = self.config.renewal.mul_f64(0.5 + rand::random::<f64>() / 2.0);
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn lead<F, Fut>(&self, lease: &Lease, acquired_at: Instant, lead: &F, shutdown: &CancellationToken)
    where
        F: Fn(CancellationToken) -> Fut,
        Fut: Future<Output = ()>,
    {
        tracing::info!(leader.term = lease.term, "this node leads");
        let stop = CancellationToken::new();
        let work = lead(stop.clone());
        tokio::pin!(work);
        tokio::select! {
            () = &mut work => tracing::error!("the leader's work ended by itself"),
            () = self.keep(lease, acquired_at) => tracing::warn!(leader.term = lease.term, "the leadership was lost"),
            () = shutdown.cancelled() => {}
        }
        stop.cancel();
        work.await;
        if let Err(error) = self.coordinator.release(lease).await {
            tracing::debug!(error = %error, "could not release the leadership; it will expire");
        }
    }

    /// Renews the lease; returns when it is lost or may be.
    async fn keep(&self, lease: &Lease, acquired_at: Instant) {
        let trusted = self.config.lease.mul_f64(2.0 / 3.0);
        let mut good_until = acquired_at + trusted;
        loop {
            let next = (Instant::now() + self.config.renewal).min(good_until);
            tokio::time::sleep_until(next).await;
            let asked_at = Instant::now();
            match tokio::time::timeout_at(good_until, self.coordinator.renew(lease, millis(self.config.lease))).await {
                Ok(Ok(true)) => good_until = asked_at + trusted,
                Ok(Err(error)) => tracing::warn!(error = %error, "could not renew the leadership"),
                Ok(Ok(false)) | Err(_) => return,
            }
            if Instant::now() >= good_until {
                return;
            }
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
